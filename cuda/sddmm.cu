// sddmm.cu: one dot product an edge and head, between the rows of its two ends.
//   out[e,h] = src_scale[u] * dst_scale[v] * sum_d feat[u,h,d] * feat_dst[v,h,d],  e = (u -> v)
// With EDGE_ROWS it is feat[e,h,d]. It is the gradient to the edge weights of spmm.cu. A slot of lanes
// owns a row v, keeps feat_dst[v] in registers and gathers one row an edge; every edge is written once, so
// pieces of rows need no merge. Heads wider than a slice are walked in LOOPS steps, the row's own slice
// coming from L1 each time.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, AHEAD (not used), SLICES (1), LOOPS,
//   WARPS, MIN_BLOCKS, EDGE_ROWS, PERMUTED (eids given), SRC_SCALE, DST_SCALE, MEAN
#include "common/rows.cuh"

static_assert(SLICES == 1, "a dot product needs the whole head");
static_assert(!(EDGE_ROWS && SRC_SCALE), "the row of an edge has no source");

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) sddmm(
    const scalar_t* __restrict__ feat,         // (N_src, H, D), or (E, H, D) in edge-id order
    const scalar_t* __restrict__ feat_dst,     // (N_dst, H, D)
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
    scalar_t* __restrict__ out) {  // (E, H), edge-id order
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();

    const auto edge_at = [&](index_t position) { return PERMUTED ? eids[position] : position; };
    const auto fetch = [&](index_t position) {
        return EDGE_ROWS ? edge_at(position) : indices[position];
    };

    for_each_unit(adj, me, [&](const Unit& unit) {
        acc_t target[K][V];
        load_row(feat_dst, unit.row, me, unit.begin < unit.end, target);
        acc_t scale = DST_SCALE && unit.row >= 0 ? dst_scale[unit.row] : static_cast<acc_t>(1);
        if (MEAN && unit.begin < unit.end) {
            scale /= static_cast<acc_t>(indptr[unit.row + 1] - indptr[unit.row]);
        }
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&ids)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                acc_t dots[U] = {};
                for (int slice = 0; slice < LOOPS; ++slice) {
                    const Lane here = on_slice(me, slice);
                    const Gathered sources = gather<full>(feat, ids, here, unit, position);
                    if (LOOPS > 1) {
                        load_row(feat_dst, unit.row, here, unit.begin < unit.end, target);
                    }
#pragma unroll
                    for (int u = 0; u < U; ++u) {
                        for_each_element([&](int k, int v) {
                            dots[u] += element(sources.rows[u][k], v) * target[k][v];
                        });
                    }
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (!full && u >= live) {
                        continue;
                    }
                    acc_t dot = sum_over_head(dots[u]) * scale;
                    const index_t at = position + u * S;
                    if (me.element == 0 && owns_head(me) && (full || at < unit.end)) {
                        if (SRC_SCALE) {
                            dot *= __ldg(src_scale + ids[u]);
                        }
                        const int64_t edge = EDGE_ROWS ? ids[u] : edge_at(at);
                        from_acc(dot, out[edge * H + me.head]);
                    }
                }
            });
    });
}
