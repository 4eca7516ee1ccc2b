// dot_attention.cu: attention by scaled dot products, forward, without edge-sized memory.
//   score[e,h] = scale * queries[v,h].keys[u,h] + bias[e,h], or * bias[e,h],  e = (u -> v)
//   a[e,h]     = p[e,h] * keep[e,h] * weight[e,h],  p = softmax_e(score)
//   out[v,h,:] = sum_e a[e,h] * values[u,h,:]
// Lanes own elements as in lanes.cuh; a slot of lanes owns a row and walks its edges once. lse is the
// base-2 log-sum-exp of a row's scores. dot_attention_backward.cu has the gradients.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, SLICES (1), WARPS, MIN_BLOCKS, AHEAD,
//   EDGE_BIAS, EDGE_WEIGHT, DROPOUT, MULTIPLY (the bias is a factor), PERMUTED, SAME_ROWS
#include "common/dot_scores.cuh"
#include "common/online_softmax.cuh"

static_assert(SLICES == 1, "a score needs the whole head");

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) dot_attention_forward(
    const scalar_t* __restrict__ queries,  // (N_dst, H, D)
    const scalar_t* __restrict__ keys,     // (N_src, H, D)
    const scalar_t* __restrict__ values,   // (N_src, H, D)
    const acc_t scale,
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
    const acc_t scale2 = to_base2(scale);
    const auto fetch = [&](index_t position) { return indices[position]; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        RowTerms terms = begin_row(edge_terms, me, unit);
        SoftmaxState state = no_edges();
        const KeptRow query = keep_row(queries, unit.row, me, unit.begin < unit.end);
        const auto load = [&](auto kind, const index_t(&cols)[U], index_t position) {
            return load_sources<decltype(kind)::value>(
                keys, values, cols, terms, me, unit, position);
        };
        for_each_gathered(
            unit, me, fetch, load,
            [&](auto kind, const Sources& sources, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                acc_t attention[U];
                share_dots<full>(query, sources.keys, live, attention);
                spread_shares(attention);
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    attention[j] = score_above(NOTHING, attention[j], scale2, sources.terms, j);
                }
                absorb_scores<full>(unit, position, state, attention);
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    attention[j] *= factor_of(sources.terms, j);
                }
                absorb_rows<full>(state, attention, sources.summed(), live);
            });
        store_softmax(me, unit, state, out, lse, part_sum, part_state);
    });
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) dot_attention_attention(
    const scalar_t* __restrict__ queries,  // (N_dst, H, D)
    const scalar_t* __restrict__ keys,     // (N_src, H, D)
    const scalar_t* __restrict__ values,   // (N_src, H, D)
    const acc_t scale,
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
    const acc_t scale2 = to_base2(scale);
    const auto fetch = [&](index_t position) { return indices[position]; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        RowTerms terms = begin_row(edge_terms, me, unit);
        const bool any = unit.begin < unit.end;
        const KeptRow query = keep_row(queries, unit.row, me, any);
        const acc_t row_lse = any && owns_head(me) ? lse[head_offset(unit.row, me)] : NOTHING;
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&cols)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                const KeptTerms kept = load_terms<full>(terms, me, unit, position);
                acc_t dots[U];
                share_dots<full>(query, gather<full>(keys, cols, me, unit, position), live, dots);
                spread_shares(dots);
                for_each_kept<full>(terms, me, unit, position, [&](int64_t at, int j) {
                    const acc_t p = fast_exp2(score_above(row_lse, dots[j], scale2, kept, j));
                    from_acc(p * factor_of(kept, j), attention[at]);
                });
            });
    });
}
