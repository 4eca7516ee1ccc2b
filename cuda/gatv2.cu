// gatv2.cu: GATv2 attention (Brody, Alon, Yahav 2022), forward, without edge-sized memory.
//   z[e,h,d]   = feat_src[u,h,d] + feat_dst[v,h,d],  e = (u -> v)
//   score[e,h] = sum_d attn[h,d] * leaky_relu(z[e,h,d]) + bias[e,h],  p = softmax_e(score)
//   a[e,h]     = p[e,h] * keep[e,h] * weight[e,h]
//   out[v,h,:] = sum_e a[e,h] * feat_src[u,h,:]
// Lanes own elements as in lanes.cuh; a slot of lanes owns a row and walks its edges once. lse is the
// base-2 log-sum-exp of the scores of gatv2_scores.cuh. The softmax is online: a running maximum per edge
// slot. gatv2_backward.cu has the gradients.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, SLICES (1), WARPS, MIN_BLOCKS, AHEAD,
//   EDGE_BIAS, EDGE_WEIGHT, DROPOUT, MULTIPLY (0), PERMUTED, BY_BLOCK (no row is cut)
#include "common/gatv2_scores.cuh"
#include "common/online_softmax.cuh"

static_assert(SLICES == 1, "a score needs the whole head");

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gatv2_forward(
    const scalar_t* __restrict__ feat_src,  // (N_src, H, D)
    const scalar_t* __restrict__ feat_dst,  // (N_dst, H, D)
    const scalar_t* __restrict__ attn,      // (H, D), or (gridDim.x, H, D) with BY_BLOCK
    const acc_t negative_slope,
    const scalar_t* __restrict__ edge_bias,    // (E) or (E, H), edge-id order
    const scalar_t* __restrict__ edge_weight,  // (E) or (E, H), edge-id order
    const index_t* __restrict__ eids,          // (E), position -> edge id
    const int64_t* __restrict__ seed,          // (1), of the dropout
    const int64_t drop_below,
    const acc_t keep_scale,
    const index_t* __restrict__ indptr,        // (N_dst + 1)
    const index_t* __restrict__ indices,       // (E), source of each position
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ out,        // (N_dst, H, D)
    acc_t* __restrict__ lse,           // (N_dst, H), base 2
    acc_t* __restrict__ part_sum,      // (num_chunks, H, D), sums relative to the piece's maximum
    acc_t* __restrict__ part_state) {  // (num_chunks, H, 2), maximum and total of each piece
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const EdgeTerms edge_terms =
        make_terms(edge_bias, edge_weight, eids, seed, drop_below, keep_scale);
    const Lane me = this_lane();
    const auto fetch = [&](index_t position) { return indices[position]; };
    const KeptRow weight = keep_row(attn, BY_BLOCK ? blockIdx.x : 0, me, true);

    for_each_unit(adj, me, [&](const Unit& unit) {
        RowTerms terms = begin_row(edge_terms, me, unit);
        SoftmaxState state = no_edges();
        const KeptRow floor = keep_negated(feat_dst, unit.row, me, unit.begin < unit.end);
        const acc_t start = doubt(floor);
        const auto load = [&](auto kind, const index_t(&cols)[U], index_t position) {
            return load_sources<decltype(kind)::value>(feat_src, cols, terms, me, unit, position);
        };
        for_each_gathered(
            unit, me, fetch, load,
            [&](auto kind, const Sources& sources, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                acc_t attention[U];
                fill(attention, start);
                share_scores<full>(
                    negative_slope, weight, floor, sources.features, live, attention);
                finish_scores(sources.terms, attention);
                absorb_scores<full>(unit, position, state, attention);
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    attention[j] *= factor_of(sources.terms, j);
                }
                absorb_rows<full>(state, attention, sources.features, live);
            });
        store_softmax(me, unit, state, out, lse, part_sum, part_state);
    });
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gatv2_attention(
    const scalar_t* __restrict__ feat_src,  // (N_src, H, D)
    const scalar_t* __restrict__ feat_dst,  // (N_dst, H, D)
    const scalar_t* __restrict__ attn,      // (H, D), or (gridDim.x, H, D) with BY_BLOCK
    const acc_t negative_slope,
    const acc_t* __restrict__ lse,             // (N_dst, H), base 2
    const scalar_t* __restrict__ edge_bias,    // (E) or (E, H), edge-id order
    const scalar_t* __restrict__ edge_weight,  // (E) or (E, H), edge-id order
    const index_t* __restrict__ eids,          // (E), position -> edge id
    const int64_t* __restrict__ seed,          // (1), of the dropout
    const int64_t drop_below,
    const acc_t keep_scale,
    const index_t* __restrict__ indptr,        // (N_dst + 1)
    const index_t* __restrict__ indices,       // (E), source of each position
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ attention) {  // (E, H), edge-id order
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const EdgeTerms edge_terms =
        make_terms(edge_bias, edge_weight, eids, seed, drop_below, keep_scale);
    const Lane me = this_lane();
    const auto fetch = [&](index_t position) { return indices[position]; };
    const KeptRow weight = keep_row(attn, BY_BLOCK ? blockIdx.x : 0, me, true);

    for_each_unit(adj, me, [&](const Unit& unit) {
        RowTerms terms = begin_row(edge_terms, me, unit);
        const bool any = unit.begin < unit.end;
        const KeptRow floor = keep_negated(feat_dst, unit.row, me, any);
        const acc_t row_lse = any && owns_head(me) ? lse[head_offset(unit.row, me)] : NOTHING;
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&cols)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                const Sources sources =
                    load_sources<full>(feat_src, cols, terms, me, unit, position);
                acc_t score[U] = {};
                share_scores<full>(negative_slope, weight, floor, sources.features, live, score);
                finish_scores(sources.terms, score);
                for_each_kept<full>(terms, me, unit, position, [&](int64_t at, int j) {
                    const acc_t p = fast_exp2(score[j] - row_lse);
                    from_acc(p * factor_of(sources.terms, j), attention[at]);
                });
            });
    });
}
