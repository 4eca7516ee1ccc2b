// edge_map.cu: one row an edge, made from the row of its destination and one more operand.
//   out[e,h,d] = scale * feat_dst[v,h,d]                      MAP_OP 0
//   out[e,h,d] = scale * (feat_dst[v,h,d] + other)            MAP_OP 1
//   out[e,h,d] = scale * feat_dst[v,h,d] * other              MAP_OP 2,  e = (u -> v)
// with other = feat[u,h,d], or with EDGE_ROWS feat[e], feat[e,h] or feat[e,h,d], and scale = src_scale[u] *
// dst_scale[v], divided by max(degree(v), 1) with MEAN. A slot of lanes owns a row v and keeps its elements in
// registers; every edge is written once, so pieces of rows need no merge.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, AHEAD (not used), SLICES, WARPS,
//   MIN_BLOCKS, MAP_OP, OPERAND (0 none, 1 one number an edge, 2 one an edge and head, 3 one an element),
//   EDGE_ROWS, PERMUTED (eids given), SRC_SCALE, DST_SCALE, MEAN
#include "common/rows.cuh"

static_assert(!(EDGE_ROWS && SRC_SCALE), "the row of an edge has no source");
static_assert((MAP_OP == 0) == (OPERAND == 0), "a copy has one operand, all else has two");
static_assert(EDGE_ROWS || OPERAND == 0 || OPERAND == 3, "rows of nodes come in full");

__device__ inline acc_t combine(acc_t kept, acc_t other) {
    if constexpr (MAP_OP == 0) {
        return kept;
    } else if constexpr (MAP_OP == 1) {
        return kept + other;
    } else {
        return kept * other;
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) edge_map(
    const scalar_t* __restrict__ feat,  // (N_src, H, D), or (E), (E, H), (E, H, D), edge-id order
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
    scalar_t* __restrict__ out) {  // (E, H, D), edge-id order
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const auto edge_at = [&](index_t position) { return PERMUTED ? eids[position] : position; };
    const auto fetch = [&](index_t position) {
        return EDGE_ROWS || OPERAND == 0 ? edge_at(position) : indices[position];
    };

    for_each_unit(adj, me, [&](const Unit& unit) {
        acc_t kept[K][V];
        load_row(feat_dst, unit.row, me, unit.begin < unit.end, kept);
        acc_t scale = DST_SCALE && unit.row >= 0 ? dst_scale[unit.row] : static_cast<acc_t>(1);
        if (MEAN && unit.begin < unit.end) {
            scale /= static_cast<acc_t>(indptr[unit.row + 1] - indptr[unit.row]);
        }
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&ids)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                packet_t rows[U][K];
                acc_t other[U] = {};
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    const bool exists = full || position + u * S < unit.end;
                    if constexpr (OPERAND == 3) {
                        load_row(feat, ids[u], me, exists, rows[u]);
                    } else if (OPERAND > 0 && exists && owns_head(me)) {
                        other[u] = to_acc(feat[OPERAND == 1 ? ids[u] : head_offset(ids[u], me)]);
                    }
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (full || position + u * S < unit.end) {
                        const bool has_id = EDGE_ROWS || OPERAND == 0;
                        const int64_t edge = has_id ? ids[u] : edge_at(position + u * S);
                        const acc_t factor = SRC_SCALE ? scale * __ldg(src_scale + ids[u]) : scale;
#pragma unroll
                        for (int k = 0; k < K; ++k) {
                            acc_t x[V];
#pragma unroll
                            for (int v = 0; v < V; ++v) {
                                const acc_t operand =
                                    OPERAND == 3 ? element(rows[u][k], v) : other[u];
                                x[v] = factor * combine(kept[k][v], operand);
                            }
                            if (owns(me, k)) {
                                store_packet(out + edge * (H * D) + me.offset + k * P * V, x);
                            }
                        }
                    }
                }
            });
    });
}
