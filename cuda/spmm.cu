// spmm.cu: weighted sums over neighbour rows.
//   out[v,h,d] = dst_scale[v] * sum_e src_scale[u] * weight[e(,h)] * feat[u,h,d],  e = (u -> v)
// With MEAN the sum is divided by max(degree(v), 1). Every factor is optional and fused into the gather.
// Lanes own elements as in lanes.cuh; a slot of lanes owns a row (or a piece of a long one, whose
// partial sum merge.cu adds up). The same kernel on the reverse adjacency is the gradient to feat.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, SLICES, WARPS, MIN_BLOCKS,
//   WEIGHT (0 none, 1 one number an edge, 2 one an edge and head), PERMUTED (eids given), SRC_SCALE,
//   DST_SCALE, MEAN
#include "common/rows.cuh"

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) spmm(
    const scalar_t* __restrict__ feat,         // (N_src, H, D)
    const scalar_t* __restrict__ edge_weight,  // (E) or (E, H), edge-id order
    const acc_t* __restrict__ src_scale,       // (N_src)
    const acc_t* __restrict__ dst_scale,       // (N_dst)
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
    scalar_t* __restrict__ out,      // (N_dst, H, D)
    acc_t* __restrict__ part_sum) {  // (num_chunks, H, D)
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();

    const auto fetch = [&](index_t position) { return indices[position]; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        acc_t sum[K][V];
        clear(sum);
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&cols)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                packet_t rows[U][K];
                acc_t factor[U];
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    const bool exists = full || position + u * S < unit.end;
                    load_row(feat, cols[u], me, exists, rows[u]);
                    factor[u] = 1;
                    if (WEIGHT > 0 && exists && owns_head(me)) {
                        const int64_t edge = PERMUTED ? eids[position + u * S] : position + u * S;
                        factor[u] = to_acc(edge_weight[WEIGHT == 1 ? edge : edge * H + me.head]);
                    }
                    if (SRC_SCALE && exists) {
                        factor[u] *= __ldg(src_scale + cols[u]);
                    }
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (full || u < live) {
                        for_each_element([&](int k, int v) {
                            if constexpr (WEIGHT > 0 || SRC_SCALE) {
                                sum[k][v] += factor[u] * element(rows[u][k], v);
                            } else {
                                sum[k][v] += element(rows[u][k], v);
                            }
                        });
                    }
                }
            });

        scatter_over_slots<0, K>(me, sum);
        if (unit.row < 0) {
            return;
        }
        acc_t scale = DST_SCALE ? dst_scale[unit.row] : static_cast<acc_t>(1);
        if (MEAN && unit.begin < unit.end) {
            scale /= static_cast<acc_t>(indptr[unit.row + 1] - indptr[unit.row]);
        }
#pragma unroll
        for (int k = 0; k < OWNED; ++k) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                sum[k][v] *= scale;
            }
        }
        if (unit.chunk < 0) {
            store_row(me, unit.row, sum, out);
        } else {
            store_piece(me, unit.chunk, sum, part_sum);
        }
    });
}
