// extremum_lists.cu: the gradient of extremum.cu by source, where rows are long and a source wins little of each.
//   grad_feat[u,c] = sum of grad_out[v,c] over the edges (u -> v) that have won it, of one contest or two
//   extremum_sort: walks the rows of destinations and lists what each edge has won, column and gradient, edge
//     after edge: a counting sort of the row's winners by their places
//   extremum_collect: walks the edges of sources and adds up their lists, in shared memory
// Comparing bytes costs an instruction for four elements of each edge, reading lists only one for each of what it
// has won. An entry is a gradient and its column, as one load. The order within a list is that of arrival, which
// no sum sees: a list names a column once, and the lists of a source are added one after the other. A warp owns a
// slice of a row, or of a piece of a long one. A maximum and a minimum of the same rows share their lists (CONTESTS
// = 2); where an edge has won both of a column, both gradients are one entry.
// Prelude: scalar_t, acc_t, index_t, H (1), D, V, P, HPW (1), K, S, R (1), U, AHEAD (not used), SLICES, LOOPS (1),
//   WARPS, MIN_BLOCKS, WINNER_BYTES, CONTESTS; extremum_sort: S = 1, MOST_PLACES (edges of a unit);
//   extremum_collect: S lists side by side, U of those in flight, the same SLICE
#include "common/prizes.cuh"

// A warp's own row of a shared array.
__device__ inline int warp_of_block() {
    return static_cast<int>(threadIdx.x) / 32;
}

__device__ inline uint32_t sum_up_to_lane(uint32_t x) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t below = __shfl_up_sync(FULL_WARP, x, step);
        x += lane >= step ? below : 0;
    }
    return x;
}

// Where the slice of a row begins in the lists.
__device__ inline int64_t list_begin(int64_t row, int64_t num_rows) {
    return (static_cast<int64_t>(blockIdx.y) * num_rows + row) * (CONTESTS * SLICE);
}

template <int BYTES>
struct column_of;
template <>
struct column_of<2> {
    using type = uint16_t;
};
template <>
struct column_of<4> {
    using type = uint32_t;
};
template <>
struct column_of<8> {
    using type = int64_t;
};

// body(contest, k, v) for every element of each contest.
template <class Body>
__device__ inline void for_each_prize(Body body) {
#pragma unroll
    for (int c = 0; c < CONTESTS; ++c) {
        for_each_element([&](int k, int v) { body(c, k, v); });
    }
}

// What an edge has won of a column of the slice.
struct __align__(2 * sizeof(scalar_t)) Entry {
    scalar_t prize;
    column_of<static_cast<int>(sizeof(scalar_t))>::type column;
};

using entry_bits = raw_vector<2 * static_cast<int>(sizeof(scalar_t))>::type;

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) extremum_sort(
    const scalar_t* __restrict__ grad_out,    // (N_dst, H, D)
    const uint8_t* __restrict__ winners,      // (WINNER_BYTES, N_dst, H, D)
    const scalar_t* __restrict__ other_grad,  // the same of the second contest
    const uint8_t* __restrict__ other_winners,
    const int64_t num_edges,
    const index_t* __restrict__ indptr,        // (N_dst + 1)
    const index_t* __restrict__ indices,       // (E)
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    uint32_t* __restrict__ spans,  // (SLICES, E): begin and length of each edge's list, 16 bits each
    entry_bits* __restrict__ entries) {  // (SLICES, N_dst, CONTESTS, SLICE), Entry
    static_assert(P == 32 && H == 1 && LOOPS == 1, "a warp owns a slice of a row");
    static_assert(K * V <= 32, "a bit for each element of a lane");
    static_assert(CONTESTS * SLICE < 65536, "spans hold 16 bits for either end");
    __shared__ uint32_t counts[WARPS][MOST_PLACES];
    __shared__ Entry sorted[WARPS][CONTESTS * SLICE];
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const int lane = threadIdx.x % 32;
    uint32_t* const count = counts[warp_of_block()];
    Entry* const mine = sorted[warp_of_block()];

    for_each_unit(adj, me, [&](const Unit& unit) {
        const uint32_t length = static_cast<uint32_t>(unit.end - unit.begin);
        if (length == 0) {
            return;
        }
        const uint32_t before = static_cast<uint32_t>(unit.begin - indptr[unit.row]);
        packet_t grads[CONTESTS][K];
        uint32_t place[CONTESTS][K][V];
        uint32_t rank[CONTESTS][K][V];
        uint32_t won_both = 0;  // a bit for each element of this lane
        load_row(grad_out, unit.row, me, true, grads[0]);
        load_places(winners, num_rows, unit.row, me, true, place[0]);
        if constexpr (CONTESTS == 2) {
            load_row(other_grad, unit.row, me, true, grads[1]);
            load_places(other_winners, num_rows, unit.row, me, true, place[1]);
            for_each_element([&](int k, int v) {
                const bool both = place[0][k][v] == place[1][k][v];
                won_both |= both ? 1u << (k * V + v) : 0u;
                place[1][k][v] = both ? NOBODY : place[1][k][v];
            });
        }
        for (uint32_t i = lane; i < length; i += 32) {
            count[i] = 0;
        }
        __syncwarp();
        int won_before = 0;  // by edges of the pieces before this one
        for_each_prize([&](int c, int k, int v) {
            won_before += place[c][k][v] < before;
            place[c][k][v] -= before;
            if (place[c][k][v] < length) {
                rank[c][k][v] = atomicAdd(count + place[c][k][v], 1u);
            }
        });
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            won_before += __shfl_xor_sync(FULL_WARP, won_before, step);
        }
        __syncwarp();
        uint32_t listed = 0;
        for (uint32_t first = 0; first < length; first += 32) {
            const uint32_t i = first + lane;
            const uint32_t won = i < length ? count[i] : 0;
            const uint32_t up_to_me = sum_up_to_lane(won);
            const uint32_t begin = listed + up_to_me - won;
            if (i < length) {
                count[i] = begin;
                const int64_t edge = blockIdx.y * num_edges + unit.begin + i;
                spans[edge] = (won_before + begin) << 16 | won;
            }
            listed += __shfl_sync(FULL_WARP, up_to_me, 31);
        }
        __syncwarp();
        for_each_prize([&](int c, int k, int v) {
            if (place[c][k][v] < length) {
                Entry& entry = mine[count[place[c][k][v]] + rank[c][k][v]];
                entry.prize = reinterpret_cast<const scalar_t*>(&grads[c][k])[v];
                entry.column = (k * P + lane) * V + v;
                if (CONTESTS == 2 && c == 0 && (won_both >> (k * V + v) & 1u)) {
                    from_acc(
                        element(grads[0][k], v) + element(grads[CONTESTS - 1][k], v), entry.prize);
                }
            }
        });
        __syncwarp();
        const int64_t to = list_begin(unit.row, num_rows) + won_before;
        for (uint32_t i = lane; i < listed; i += 32) {
            entries[to + i] = reinterpret_cast<const entry_bits&>(mine[i]);
        }
        __syncwarp();
    });
}

// The list of one edge.
struct __align__(16) List {
    int64_t from;
    int length;
};

// The lists of up to 32 edges, those that are not empty first; the rest has length 0.
__device__ inline int fill_queue(List* queue, int64_t begin, uint32_t span) {
    const int lane = threadIdx.x % 32;
    const int length = static_cast<int>(span & 0xffffu);
    const unsigned filled = __ballot_sync(FULL_WARP, length > 0);
    const int count = __popc(filled);
    if (length > 0) {
        queue[__popc(filled & ((1u << lane) - 1))] = List{begin + (span >> 16), length};
    }
    if (lane >= count) {
        queue[lane] = List{0, 0};
    }
    __syncwarp();
    return count;
}

__device__ inline void add_entry(const entry_bits& bits, acc_t* sum) {
    const Entry& entry = reinterpret_cast<const Entry&>(bits);
    sum[entry.column] += to_acc(entry.prize);
}

// Add the lists of a queue, in its order, S of them read side by side and U of those on their way. A list
// names a column once: only lists have to wait for each other.
__device__ inline void add_lists(
    const List* queue,
    int filled,
    const entry_bits* __restrict__ entries,
    int slot,
    int place,
    acc_t* sum) {
    constexpr int lanes = 32 / S;
    static_assert(32 % (U * S) == 0, "what is read beyond the last list must be in the queue");
    for (int first = 0; first < filled; first += U * S) {
        int length[U];
        entry_bits entry[U];
        int longest = 0;
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const List list = queue[first + u * S + slot];
            length[u] = list.length;
            longest = length[u] > longest ? length[u] : longest;
            if (place < length[u]) {
                entry[u] = __ldg(entries + list.from + place);
            }
        }
        const bool fit = __all_sync(FULL_WARP, longest <= lanes);
#pragma unroll
        for (int u = 0; u < U; ++u) {
#pragma unroll
            for (int turn = 0; turn < S; ++turn) {
                if (slot == turn && place < length[u]) {
                    add_entry(entry[u], sum);
                    if (!fit) {
                        const entry_bits* from = entries + queue[first + u * S + slot].from;
                        for (int i = place + lanes; i < length[u]; i += lanes) {
                            add_entry(__ldg(from + i), sum);
                        }
                    }
                }
                __syncwarp();
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) extremum_collect(
    const scalar_t* __restrict__ initial,    // (N_src, H, D) to begin with, or null
    const uint32_t* __restrict__ spans,      // (SLICES, E)
    const entry_bits* __restrict__ entries,  // (SLICES, N_dst, CONTESTS, SLICE), Entry
    const index_t* __restrict__ positions,   // (E), of each position in the rows of destinations
    const int64_t num_cols,                  // N_dst
    const int64_t num_edges,
    const index_t* __restrict__ indptr,        // (N_src + 1)
    const index_t* __restrict__ indices,       // (E), destination of each position
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ grad_feat,  // (N_src, H, D)
    acc_t* __restrict__ part_sum) {    // (num_chunks, H, D)
    static_assert(P * S == 32 && HPW == 1 && R == 1 && LOOPS == 1, "a warp owns a slice of a row");
    __shared__ acc_t sums[WARPS][SLICE];
    __shared__ List queues[WARPS][32];
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const int lane = threadIdx.x % 32;
    acc_t* const sum = sums[warp_of_block()];
    List* const queue = queues[warp_of_block()];
    const int slot = lane / P;
    const int place = lane % P;
    const int64_t first_span = blockIdx.y * num_edges;

    for_each_unit(adj, me, [&](const Unit& unit) {
        if (unit.row < 0) {
            return;
        }
        for (int i = lane; i < SLICE; i += 32) {
            const int column = static_cast<int>(blockIdx.y) * SLICE + i;
            const bool begins = initial != nullptr && unit.begin == indptr[unit.row];
            const bool exists = column < D;
            sum[i] = begins && exists ? to_acc(initial[unit.row * D + column]) : NOTHING;
        }
        // What leads to a list is read one round ahead, and the spans while the lists before are added.
        index_t row = 0;
        index_t position = 0;
        const auto find = [&](index_t at) {
            if (at < unit.end) {
                row = indices[at];
                position = positions[at];
            }
        };
        find(unit.begin + lane);
        uint32_t span = 0;
        for (index_t first = unit.begin; first < unit.end; first += 32) {
            span = first + lane < unit.end ? __ldg(spans + first_span + position) : 0;
            const int64_t begin = list_begin(row, num_cols);
            find(first + 32 + lane);
            const int filled = fill_queue(queue, begin, span);
            add_lists(queue, filled, entries, slot, place, sum);
        }
        __syncwarp();
        for (int i = lane; i < SLICE; i += 32) {
            const int column = static_cast<int>(blockIdx.y) * SLICE + i;
            if (column < D && unit.chunk < 0) {
                from_acc(sum[i], grad_feat[unit.row * D + column]);
            } else if (column < D) {
                part_sum[unit.chunk * D + column] = sum[i];
            }
        }
        __syncwarp();
    });
}
