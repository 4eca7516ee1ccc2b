// extremum_backward.cu: what the winners of a maximum or minimum let through, in both directions.
//   extremum_backward: grad_feat[u,h,d] = sum of grad_out[v,h,d] over the edges (u -> v) that have won it
//   extremum_edges: grad_edge[e] = grad_out[v,h,d] where e has won, summed over what the edge has one number for
//   extremum_pick: out[v,h,d] = feat[u,h,d] or edge_feat[e] of the winner, 0 where there is none
// extremum_backward walks the reverse adjacency and compares a byte an element and edge (prizes.cuh).
// A slot of lanes owns a row, or a piece of a long one that merge.cu puts together. Where rows are long,
// extremum_lists.cu does what extremum_backward does here.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, AHEAD (not used), SLICES, LOOPS, WARPS,
//   MIN_BLOCKS, WINNER_BYTES; extremum_edges, extremum_pick: WEIGHT (1 one number an edge, 2 one an edge and head,
//   3 one an element), PERMUTED (eids given); extremum_pick: EDGE_ROWS
#include "common/prizes.cuh"

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) extremum_backward(
    const scalar_t* __restrict__ grad_out,     // (N_dst, H, D)
    const uint8_t* __restrict__ winners,       // (WINNER_BYTES, N_dst, H, D)
    const index_t* __restrict__ places,        // (E), of each position in the row of its column
    const int64_t num_cols,                    // N_dst
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
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const Prizes prizes{grad_out, winners, num_cols * (H * D)};
    const auto fetch = [&](index_t position) { return indices[position]; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        acc_t sum[K][V];
        clear(sum);
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&ids)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                Place edges[U];
                read_places<full>(places, unit, position, edges);
                add_prizes<full>(prizes, edges, ids, me, unit, position, live, sum);
            });
        scatter_over_slots<0, K>(me, sum);
        if (unit.row < 0) {
            return;
        }
        if (unit.chunk < 0) {
            store_row(me, unit.row, sum, grad_feat);
        } else {
            store_piece(me, unit.chunk, sum, part_sum);
        }
    });
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) extremum_edges(
    const scalar_t* __restrict__ grad_out,     // (N_dst, H, D)
    const uint8_t* __restrict__ winners,       // (WINNER_BYTES, N_dst, H, D)
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
    scalar_t* __restrict__ grad_edge) {  // (E), (E, H) or (E, H, D), edge-id order
    static_assert(WEIGHT == 3 || SLICES == 1, "a sum over a head needs all of it");
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const auto fetch = [&](index_t position) { return PERMUTED ? eids[position] : position; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        const index_t row_begin = unit.row < 0 ? 0 : indptr[unit.row];
        const bool has_edges = unit.begin < unit.end;
        acc_t grad[K][V];
        uint32_t place[K][V];
        load_row(grad_out, unit.row, me, has_edges, grad);
        load_places(winners, num_rows, unit.row, me, has_edges, place);
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&ids)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                acc_t sums[U] = {};
                for (int slice = 0; slice < LOOPS; ++slice) {
                    if (LOOPS > 1) {
                        const Lane here = on_slice(me, slice);
                        load_row(grad_out, unit.row, here, has_edges, grad);
                        load_places(winners, num_rows, unit.row, here, has_edges, place);
                    }
#pragma unroll
                    for (int u = 0; u < U; ++u) {
                        const index_t at = position + u * S;
                        const uint32_t mine = static_cast<uint32_t>(at - row_begin);
#pragma unroll
                        for (int k = 0; k < K; ++k) {
                            acc_t won[V];
#pragma unroll
                            for (int v = 0; v < V; ++v) {
                                won[v] = place[k][v] == mine ? grad[k][v] : NOTHING;
                                sums[u] += won[v];
                            }
                            if (WEIGHT == 3 && (full || at < unit.end) && owns(me, k)) {
                                const int64_t edge = ids[u];
                                store_packet(
                                    grad_edge + edge * (H * D) + me.offset + k * P * V, won);
                            }
                        }
                    }
                }
#pragma unroll
                for (int u = 0; u < U && WEIGHT != 3; ++u) {
                    if (!full && u >= live) {
                        continue;
                    }
                    const acc_t sum = sum_over_head(sums[u]);
                    if (me.element == 0 && owns_head(me) && (full || position + u * S < unit.end)) {
                        from_acc(sum, grad_edge[head_offset(ids[u], me)]);
                    }
                }
            });
    });
}

extern "C" __global__ void extremum_pick(
    const scalar_t* __restrict__ feat,    // (N_src, H, D), or of edges (E), (E, H) or (E, H, D)
    const uint8_t* __restrict__ winners,  // (WINNER_BYTES, N_dst, H, D)
    const index_t* __restrict__ eids,     // (E), position -> edge id
    const index_t* __restrict__ indptr,   // (N_dst + 1)
    const index_t* __restrict__ indices,  // (E), source of each position
    const int64_t num_rows,
    // outputs
    scalar_t* __restrict__ out) {  // (N_dst, H, D)
    const int64_t size = num_rows * (H * D);
    const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= size) {
        return;
    }
    const int64_t row = at / (H * D);
    const int column = static_cast<int>(at % (H * D));
    const int64_t begin = indptr[row];
    const uint32_t place = load_place(winners, size, at);
    acc_t picked = NOTHING;
    if (place != NOBODY) {
        const int64_t position = begin + place;
        const int64_t edge = PERMUTED ? eids[position] : position;
        const int64_t id = EDGE_ROWS ? edge : indices[position];
        const int part = WEIGHT == 1 ? 0 : WEIGHT == 2 ? column / D : column;
        const int parts = WEIGHT == 1 ? 1 : WEIGHT == 2 ? H : H * D;
        picked = to_acc(feat[id * parts + part]);
    }
    from_acc(picked, out[at]);
}
