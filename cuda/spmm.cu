// spmm.cu: weighted sums over the rows of neighbours, or over the rows of the edges themselves.
//   out[v,h,d] = dst_scale[v] * sum_e src_scale[u] * weight[e(,h(,d))] * feat[u,h,d],  e = (u -> v)
// With EDGE_ROWS it is feat[e,h,d]. With MEAN the sum is divided by max(degree(v), 1). Every factor is
// optional and fused into the gather. Lanes own elements as in lanes.cuh; a slot of lanes owns a row (or
// a piece of a long one, whose partial sum merge.cu adds up). The same kernel on the reverse adjacency is
// the gradient to the rows of nodes.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, AHEAD (not used), SLICES, WARPS,
//   MIN_BLOCKS, EDGE_ROWS, WEIGHT (0 none, 1 one number an edge, 2 one an edge and head, 3 one an
//   element), PERMUTED (eids given), SRC_SCALE, DST_SCALE, MEAN
#include "common/rows.cuh"

static_assert(!(EDGE_ROWS && SRC_SCALE), "the row of an edge has no source");

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) spmm(
    const scalar_t* __restrict__ feat,         // (N_src, H, D), or (E, H, D) in edge-id order
    const scalar_t* __restrict__ edge_weight,  // (E), (E, H) or (E, H, D), edge-id order
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

    const auto edge_at = [&](index_t position) { return PERMUTED ? eids[position] : position; };
    const auto fetch = [&](index_t position) {
        return EDGE_ROWS ? edge_at(position) : indices[position];
    };

    for_each_unit(adj, me, [&](const Unit& unit) {
        acc_t sum[K][V];
        clear(sum);
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&ids)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                packet_t rows[U][K];
                packet_t weights[WEIGHT == 3 ? U : 1][K];
                acc_t factor[U];
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    const bool exists = full || position + u * S < unit.end;
                    load_row(feat, ids[u], me, exists, rows[u]);
                    factor[u] = 1;
                    const int64_t edge = EDGE_ROWS || !exists ? ids[u] : edge_at(position + u * S);
                    if constexpr (WEIGHT == 3) {
                        load_row(edge_weight, edge, me, exists, weights[u]);
                    } else if (WEIGHT > 0 && exists && owns_head(me)) {
                        factor[u] = to_acc(edge_weight[WEIGHT == 1 ? edge : head_offset(edge, me)]);
                    }
                    if (SRC_SCALE && exists) {
                        factor[u] *= __ldg(src_scale + ids[u]);
                    }
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (full || u < live) {
                        for_each_element([&](int k, int v) {
                            acc_t term = element(rows[u][k], v);
                            if constexpr (WEIGHT == 3) {
                                term *= element(weights[u][k], v);
                            }
                            if constexpr (WEIGHT == 1 || WEIGHT == 2 || SRC_SCALE) {
                                sum[k][v] += factor[u] * term;
                            } else {
                                sum[k][v] += term;
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
