// extremum.cu: the largest (MOST 1) or smallest message of each row's edges, and which edge it came from.
//   out[v,h,d] = max_e message[e,h,d],  e = (u -> v)
// with message feat[u,h,d] or with EDGE_ROWS feat[e,h,d] (MESSAGE 0), plus (1) or times (2) a number of the
// edge. Rows without edges and infinite results are 0; contest.cuh says who wins.
// A slot of lanes owns a row, or a piece of a long one that merge.cu puts together.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, AHEAD (not used), SLICES, WARPS, MIN_BLOCKS,
//   WINNER_BYTES (0: winners are not wanted), MOST, MESSAGE, WEIGHT (0 none, 1 one number an edge, 2 one an edge
//   and head, 3 one an element), EDGE_ROWS, PERMUTED (eids given)
#include "common/winners.cuh"

template <int MESSAGE, int WEIGHT, class Held>
__device__ inline void take_message(
    Held& held,
    const packet_t (&row)[K],
    const packet_t (&edge_row)[K],
    acc_t number,
    uint32_t place,
    bool exists) {
    if constexpr (MESSAGE == 0) {
        consider(held, row, place, exists);
    } else {
        for_each_element([&](int k, int v) {
            const acc_t x = element(row[k], v);
            const acc_t y = WEIGHT == 3 ? element(edge_row[k], v) : number;
            consider(held, k, v, MESSAGE == 1 ? x + y : x * y, place, exists);
        });
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) extremum(
    const scalar_t* __restrict__ feat,         // (N_src, H, D), or (E, H, D) in edge-id order
    const scalar_t* __restrict__ edge_feat,    // (E), (E, H) or (E, H, D), edge-id order
    const index_t* __restrict__ eids,          // (E), position -> edge id
    const index_t* __restrict__ indptr,        // (N_dst + 1)
    const index_t* __restrict__ indices,       // (E), source of each position
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ out,           // (N_dst, H, D)
    uint8_t* __restrict__ winners,        // (WINNER_BYTES, N_dst, H, D)
    acc_t* __restrict__ part_best,        // (num_chunks, H, D)
    uint32_t* __restrict__ part_place) {  // (num_chunks, H, D)
    static_assert((MESSAGE == 0) == (WEIGHT == 0), "a copy has one operand, all else has two");
    constexpr bool most = MOST;
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const auto edge_at = [&](index_t position) { return PERMUTED ? eids[position] : position; };
    const auto fetch = [&](index_t position) {
        return EDGE_ROWS ? edge_at(position) : indices[position];
    };

    for_each_unit(adj, me, [&](const Unit& unit) {
        constexpr bool pairs = COMPARE_PAIRS && MESSAGE == 0;
        typename select<pairs, PairWinners<most>, Winners<most>>::type held;
        clear(held);
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&ids)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                const Gathered sources = gather<full>(feat, ids, me, unit, position);
                packet_t edges[WEIGHT == 3 ? U : 1][K];
                acc_t number[U] = {};
#pragma unroll
                for (int u = 0; u < U && WEIGHT > 0; ++u) {
                    const bool exists = full || position + u * S < unit.end;
                    const int64_t edge = EDGE_ROWS || !exists ? ids[u] : edge_at(position + u * S);
                    if constexpr (WEIGHT == 3) {
                        load_row(edge_feat, edge, me, exists, edges[u]);
                    } else if (exists && owns_head(me)) {
                        number[u] =
                            load_number(edge_feat + (WEIGHT == 1 ? edge : head_offset(edge, me)));
                    }
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (!full && u >= live) {
                        continue;
                    }
                    const bool exists = full || position + u * S < unit.end;
                    const uint32_t place = static_cast<uint32_t>(position + u * S - unit.begin);
                    packet_t(&second)[K] = edges[WEIGHT == 3 ? u : 0];
                    take_message<MESSAGE, WEIGHT>(
                        held, sources.rows[u], second, number[u], place, exists);
                }
            });

        Winners<most> found = spelled_out(held);
        settle_slots(me, found);
        if (unit.row < 0) {
            return;
        }
        if (unit.chunk < 0) {
            store_winners(me, unit.row, num_rows, found, out, winners);
        } else {
            const uint32_t before = static_cast<uint32_t>(unit.begin - indptr[unit.row]);
            store_piece_winners(me, unit.chunk, before, found, part_best, part_place);
        }
    });
}
