// winners.cuh: which edge of a row has the largest (MOST) or smallest value, element by element.
//
// contest.cuh says who wins. A winner is known by its place: how many edges of its row come before it. What
// is kept of places is their bytes, one plane of memory for each, the lowest first; all bits are set where
// there is no winner.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, SLICES, LOOPS, WINNER_BYTES
#pragma once

#include "contest.cuh"
#include "rows.cuh"

template <bool WHETHER, class A, class B>
struct select {
    using type = A;
};
template <class A, class B>
struct select<false, A, B> {
    using type = B;
};

// Two 16-bit numbers of a register are compared at once, while nothing is computed from them.
constexpr int PAIRS = V > 1 ? V / 2 : 1;
constexpr bool COMPARE_PAIRS = in_pairs<scalar_t> && COMPARES_PAIRS<scalar_t>;

template <bool MOST>
struct Winners {
    acc_t best[K][V];
    uint32_t place[K][V];  // from the begin of the unit
};

template <bool MOST>
struct PairWinners {
    uint32_t best[K][PAIRS];
    uint32_t place[K][PAIRS];  // two of 16 bits: a unit is at most twice the longest piece
};

template <bool MOST>
__device__ inline void clear(Winners<MOST>& held) {
    for_each_element([&](int k, int v) {
        held.best[k][v] = weakest<MOST>();
        held.place[k][v] = NOBODY;
    });
}

template <bool MOST>
__device__ inline void clear(PairWinners<MOST>& held) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            held.best[k][i] = infinite_pair<scalar_t>(MOST);
            held.place[k][i] = NOBODY;
        }
    }
}

template <bool MOST>
__device__ inline void consider(
    Winners<MOST>& held,
    int k,
    int v,
    acc_t value,
    uint32_t place,
    bool exists) {
    if constexpr (WINNER_BYTES == 0) {
        const acc_t mine = exists ? value : weakest<MOST>();
        held.best[k][v] = MOST ? largest(held.best[k][v], mine) : smallest(held.best[k][v], mine);
    } else {
        const bool wins = exists && beats<MOST>(value, held.best[k][v]);
        held.best[k][v] = wins ? value : held.best[k][v];
        held.place[k][v] = wins ? place : held.place[k][v];
    }
}

template <bool MOST>
__device__ inline void consider(
    Winners<MOST>& held,
    const packet_t (&row)[K],
    uint32_t place,
    bool exists) {
    for_each_element(
        [&](int k, int v) { consider(held, k, v, element(row[k], v), place, exists); });
}

template <bool MOST>
__device__ inline void consider(
    PairWinners<MOST>& held,
    const packet_t (&row)[K],
    uint32_t place,
    bool exists) {
    const uint32_t places = place * 0x10001u;
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            const uint32_t pair = reinterpret_cast<const uint32_t*>(&row[k])[i];
            const uint32_t mine = exists ? pair : infinite_pair<scalar_t>(MOST);
            uint32_t& best = held.best[k][i];
            if constexpr (WINNER_BYTES == 0 && EXTREMES_OF_PAIRS) {
                best = number_pair<scalar_t, MOST>(best, mine);
            } else {
                const uint32_t wins =
                    MOST ? mask_above<scalar_t>(mine, best) : mask_above<scalar_t>(best, mine);
                best = (mine & wins) | (best & ~wins);
                held.place[k][i] = (places & wins) | (held.place[k][i] & ~wins);
            }
        }
    }
}

template <bool MOST>
__device__ inline Winners<MOST> spelled_out(const Winners<MOST>& held) {
    return held;
}

template <bool MOST>
__device__ inline Winners<MOST> spelled_out(const PairWinners<MOST>& held) {
    Winners<MOST> single;
    for_each_element([&](int k, int v) {
        const uint32_t pair = held.best[k][v / 2];
        const uint32_t place =
            v % 2 == 0 ? held.place[k][v / 2] & 0xffffu : held.place[k][v / 2] >> 16;
        single.best[k][v] = v % 2 == 0 ? low_to_acc<scalar_t>(pair) : high_to_acc<scalar_t>(pair);
        single.place[k][v] = place == 0xffffu ? NOBODY : place;
    });
    return single;
}

// As scatter_over_slots does with sums: each edge slot of a row ends up with a share of the vectors.
template <bool MOST, int STEP = 0, int N = K>
__device__ inline void settle_slots(const Lane& me, Winners<MOST>& held) {
    if constexpr ((1 << STEP) < S) {
        constexpr int partner = ROW_LANES << STEP;
        constexpr bool halves = N % 2 == 0;
        constexpr int left = halves ? N / 2 : N;
        const bool upper = halves && ((me.edge_slot >> STEP) & 1);
#pragma unroll
        for (int k = 0; k < left; ++k) {
            const int other = halves ? k + left : k;
#pragma unroll
            for (int v = 0; v < V; ++v) {
                const acc_t best = upper ? held.best[k][v] : held.best[other][v];
                const uint32_t place = upper ? held.place[k][v] : held.place[other][v];
                held.best[k][v] = upper ? held.best[other][v] : held.best[k][v];
                held.place[k][v] = upper ? held.place[other][v] : held.place[k][v];
                const acc_t given = __shfl_xor_sync(FULL_WARP, best, partner);
                const uint32_t given_place =
                    WINNER_BYTES > 0 ? __shfl_xor_sync(FULL_WARP, place, partner) : NOBODY;
                absorb<MOST>(held.best[k][v], held.place[k][v], given, given_place);
            }
        }
        settle_slots<MOST, STEP + 1, left>(me, held);
    }
}

// V bytes of the b-th plane, for consecutive elements.
using bytes_t = raw_vector<V>::type;

__device__ inline bytes_t pack_bytes(const uint32_t (&place)[V], int byte) {
    bytes_t packed{};
#pragma unroll
    for (int v = 0; v < V; ++v) {
        reinterpret_cast<uint8_t*>(&packed)[v] = static_cast<uint8_t>(place[v] >> (8 * byte));
    }
    return packed;
}

// Write the owned vectors of a finished row, infinities as 0 that nobody has reached.
template <bool MOST>
__device__ inline void store_winners(
    const Lane& me,
    int64_t row,
    int64_t num_rows,
    Winners<MOST>& held,
    scalar_t* out,
    uint8_t* winners) {
    const int first = first_owned(me);
#pragma unroll
    for (int k = 0; k < OWNED; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
            const bool lost = is_infinite(held.best[k][v]);
            held.best[k][v] = lost ? NOTHING : held.best[k][v];
            held.place[k][v] = lost ? NOBODY : held.place[k][v];
        }
        if (is_writer(me) && owns(me, first + k)) {
            const int64_t at = row * (H * D) + me.offset + (first + k) * P * V;
            store_packet(out + at, held.best[k]);
#pragma unroll
            for (int byte = 0; byte < WINNER_BYTES; ++byte) {
                uint8_t* to = winners + byte * num_rows * (H * D) + at;
                *reinterpret_cast<bytes_t*>(to) = pack_bytes(held.place[k], byte);
            }
        }
    }
}

// The same for a piece that merge.cu will read; places count from the begin of the row.
template <bool MOST>
__device__ inline void store_piece_winners(
    const Lane& me,
    int64_t piece,
    uint32_t before,
    const Winners<MOST>& held,
    acc_t* part_best,
    uint32_t* part_place) {
    const int first = first_owned(me);
#pragma unroll
    for (int k = 0; k < OWNED; ++k) {
        if (is_writer(me) && owns(me, first + k)) {
            const int64_t at = piece * (H * D) + me.offset + (first + k) * P * V;
#pragma unroll
            for (int v = 0; v < V; ++v) {
                const uint32_t place = held.place[k][v];
                part_best[at + v] = held.best[k][v];
                part_place[at + v] = place == NOBODY ? NOBODY : place + before;
            }
        }
    }
}
