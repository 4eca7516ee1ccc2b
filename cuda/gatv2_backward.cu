// gatv2_backward.cu: the gradients of gatv2.cu, in two passes without atomics or edge-sized memory.
// With i[e,h] = grad_out[v].feat_src[u] (+ grad_attention[e,h]), x = keep weight i, delta[v] = sum_e p x,
// ds = p (x - delta) and t[e,h,d] = ds leaky_relu'(z) = ds (slope + (1 - slope) [z > 0]):
//   grad_dst[v] = attn * sum_e t                         (by destination)
//   grad_src[u] = attn * sum_e t + sum_e a grad_out[v]   (by source)
//   grad_attn   = sum_v feat_dst[v] * sum_e t + sum_u feat_src[u] * sum_e t
//   grad_bias[e] = ds,  grad_weight[e] = p keep i        (by source)
// The line of grad_attn needs no work per edge: both sums over t are at hand when a row ends. By
// destination sum_e ds = 0, so that only the edges with z > 0 count:
//   sum_e t = (1 - slope) (sum_{z>0} p x - delta sum_{z>0} p) / sum_e p,
// see centered_sums.cuh. The forward's output is not needed. By source the scores are added up in the
// same order, so that p is the same again (but for rounding on tensor cores), and divided by the same sum.
// Prelude: as gatv2.cu, and GRAD_ATTENTION, GRAD_BIAS, GRAD_WEIGHT
#include "common/block_sum.cuh"
#include "common/centered_sums.cuh"
#include "common/gatv2_scores.cuh"

static_assert(SLICES == 1, "a score needs the whole head");

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gatv2_backward_dst(
    const scalar_t* __restrict__ feat_src,  // (N_src, H, D)
    const scalar_t* __restrict__ feat_dst,  // (N_dst, H, D)
    const scalar_t* __restrict__ attn,      // (H, D), or (gridDim.x, H, D) with BY_BLOCK
    const acc_t negative_slope,
    const scalar_t* __restrict__ grad_out,        // (N_dst, H, D)
    const scalar_t* __restrict__ grad_attention,  // (E, H), edge-id order
    const acc_t* __restrict__ lse,                // (N_dst, H), base 2
    const scalar_t* __restrict__ edge_bias,       // (E) or (E, H), edge-id order
    const scalar_t* __restrict__ edge_weight,     // (E) or (E, H), edge-id order
    const index_t* __restrict__ eids,             // (E), position -> edge id
    const int64_t* __restrict__ seed,             // (1), of the dropout
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
    scalar_t* __restrict__ grad_dst,  // (N_dst, H, D)
    acc_t* __restrict__ row_state,    // (N_dst, H, 2): 1 / sum of p, and delta
    acc_t* __restrict__ part_sums,    // (num_chunks, 2, H, D): sums of p x and of p over z > 0
    acc_t* __restrict__ part_totals,  // (num_chunks, H, 2): sums of p x and of p
    acc_t* __restrict__ part_attn) {  // (gridDim.x, H, D)
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const EdgeTerms edge_terms =
        make_terms(edge_bias, edge_weight, eids, seed, drop_below, keep_scale);
    const Lane me = this_lane();
    const auto fetch = [&](index_t position) { return indices[position]; };
    const KeptRow weight = keep_row(attn, BY_BLOCK ? blockIdx.x : 0, me, true);
    acc_t attn_share[K][V];
    clear(attn_share);

    for_each_unit(adj, me, [&](const Unit& unit) {
        RowTerms terms = begin_row(edge_terms, me, unit);
        const bool any = unit.begin < unit.end;
        const KeptRow floor = keep_negated(feat_dst, unit.row, me, any);
        const KeptRow grad = keep_row(grad_out, unit.row, me, any);
        const acc_t row_lse = any && owns_head(me) ? lse[head_offset(unit.row, me)] : NOTHING;

        CenteredSums<K, V> sums = no_sums<K, V>();  // the g of an edge is [z > 0]
        const auto load = [&](auto kind, const index_t(&cols)[U], index_t position) {
            return load_sources<decltype(kind)::value>(feat_src, cols, terms, me, unit, position);
        };
        for_each_gathered(
            unit, me, fetch, load,
            [&](auto kind, const Sources& sources, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                const auto& rows = sources.features.rows;
                acc_t score[U];
                acc_t inner[U];
                share_scores_and_dots<full>(
                    negative_slope, weight, floor, grad, sources.features, live, score, inner);
                finish_scores(sources.terms, score);
                spread_shares(inner);
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    if constexpr (GRAD_ATTENTION) {
                        inner[j] += kept_number<full>(grad_attention, terms, me, unit, position, j);
                    }
                    inner[j] = weighted_inner(sources.terms, j, inner[j]);
                }
                const index_t nth = (position - unit.begin) / GROUP;
                if (nth == 0) {
                    sums.shift = first_shift(unit, inner);
                }
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    const bool exists = keeps_edge<full>(unit, position, j);
                    score[j] = exists ? fast_exp2(score[j] - row_lse) : NOTHING;
                    inner[j] = score[j] * (inner[j] - sums.shift);
                    sums.total += score[j];
                    sums.inner += inner[j];
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (full || u < live) {
                        const acc_t p = from_spread(score, u);
                        const acc_t weighted = from_spread(inner, u);
                        for_each_above(rows[u], floor, [&](int k, int v) {
                            sums.picked[k][v] += p;
                            sums.inner_picked[k][v] += weighted;
                        });
                    }
                }
                recenter(sums, nth + 1);
            });

        const RowTotals totals = totals_of(sums);
        if (!in_chunk_block(adj)) {
            const acc_t scale = any ? (1 - negative_slope) / totals.total : NOTHING;
            const acc_t delta = any ? totals.inner / totals.total : NOTHING;  // from the shift on
            for_each_element([&](int k, int v) {
                const acc_t t = scale * (sums.inner_picked[k][v] - delta * sums.picked[k][v]);
                attn_share[k][v] -= floor.at(k, v) * t;
                sums.picked[k][v] = weight.at(k, v) * t;
            });
            scatter_over_slots<0, K>(me, sums.picked);
            if (unit.row >= 0) {
                store_row(me, unit.row, sums.picked, grad_dst);
            }
            store_row_state(me, unit, totals, sums.shift, row_state);
        } else {
            const acc_t shift = sums.shift;
            move_shift(sums, -shift);
            scatter_over_slots<0, K>(me, sums.inner_picked);
            scatter_over_slots<0, K>(me, sums.picked);
            if (unit.chunk >= 0) {
                store_piece(me, 2 * unit.chunk, sums.inner_picked, part_sums);
                store_piece(me, 2 * unit.chunk + 1, sums.picked, part_sums);
            }
            store_piece_totals(me, unit, totals, shift, part_totals);
        }
    });
    store_block_sum(me, attn_share, part_attn);
}

// What the pass by source reads of a group's destinations.
struct Ends {
    EndStates states;
    KeptTerms terms;
    Gathered targets;
    Gathered grads;
};

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gatv2_backward_src(
    const scalar_t* __restrict__ feat_src,  // (N_src, H, D)
    const scalar_t* __restrict__ feat_dst,  // (N_dst, H, D)
    const scalar_t* __restrict__ attn,      // (H, D), or (gridDim.x, H, D) with BY_BLOCK
    const acc_t negative_slope,
    const scalar_t* __restrict__ grad_out,        // (N_dst, H, D)
    const scalar_t* __restrict__ grad_attention,  // (E, H), edge-id order
    const acc_t* __restrict__ lse,                // (N_dst, H), base 2
    const acc_t* __restrict__ row_state,          // (N_dst, H, 2): 1 / sum of p, and delta
    const scalar_t* __restrict__ edge_bias,       // (E) or (E, H), edge-id order
    const scalar_t* __restrict__ edge_weight,     // (E) or (E, H), edge-id order
    const index_t* __restrict__ eids,             // (E), position -> edge id
    const int64_t* __restrict__ seed,             // (1), of the dropout
    const int64_t drop_below,
    const acc_t keep_scale,
    const index_t* __restrict__ indptr,        // (N_src + 1), of the reverse adjacency
    const index_t* __restrict__ indices,       // (E), destination of each position
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ grad_src,          // (N_src, H, D)
    bias_grad_t* __restrict__ grad_bias,      // (E, H), edge-id order
    weight_grad_t* __restrict__ grad_weight,  // (E, H), edge-id order
    acc_t* __restrict__ part_grad,            // (num_chunks, H, D)
    acc_t* __restrict__ part_attn) {          // (gridDim.x, H, D)
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const EdgeTerms edge_terms =
        make_terms(edge_bias, edge_weight, eids, seed, drop_below, keep_scale);
    const Lane me = this_lane();
    const auto fetch = [&](index_t position) { return indices[position]; };
    const KeptRow weight = keep_row(attn, BY_BLOCK ? blockIdx.x : 0, me, true);
    acc_t attn_share[K][V];
    clear(attn_share);

    for_each_unit(adj, me, [&](const Unit& unit) {
        RowTerms terms = begin_row(edge_terms, me, unit);
        const KeptRow floor = keep_negated(feat_src, unit.row, me, unit.begin < unit.end);
        const acc_t linear = linear_part(weight, floor);

        acc_t sum_ds = NOTHING;
        acc_t positive[K][V];  // sum of ds over edges with z > 0
        acc_t value[K][V];     // sum of a * grad_out
        clear(positive);
        clear(value);
        const auto load = [&](auto kind, const index_t(&cols)[U], index_t position) {
            constexpr bool full = decltype(kind)::value;
            Ends ends;
            ends.states = load_states<full>(lse, row_state, cols, me, unit, position);
            ends.terms = load_terms<full>(terms, me, unit, position);
            ends.targets = gather<full>(feat_dst, cols, me, unit, position);
            ends.grads = gather<full>(grad_out, cols, me, unit, position);
            return ends;
        };
        for_each_gathered(
            unit, me, fetch, load, [&](auto kind, const Ends& ends, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                const auto& targets = ends.targets.rows;
                const auto& grads = ends.grads.rows;
                acc_t score[U];
                acc_t inner[U];
                share_scores_of_source<full>(
                    negative_slope, weight, floor, linear, ends.targets, live, score);
                share_dots<full>(floor, ends.grads, live, inner);
                finish_scores(ends.terms, score);
                spread_shares(inner);
                acc_t attention[U];
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    const bool exists = keeps_edge<full>(unit, position, j);
                    const acc_t p =
                        exists ? ends.states.softmax(j, score[j] - ends.states.lse[j]) : NOTHING;
                    inner[j] = -inner[j];
                    if constexpr (GRAD_ATTENTION) {
                        inner[j] += kept_number<full>(grad_attention, terms, me, unit, position, j);
                    }
                    attention[j] = p * factor_of(ends.terms, j);
                    score[j] = p * ends.terms.keep[j] * inner[j];  // the gradient of the weight
                    inner[j] = p * ends.states.centered(j, weighted_inner(ends.terms, j, inner[j]));
                    sum_ds += inner[j];
                }
                if constexpr (GRAD_BIAS || GRAD_WEIGHT) {
                    for_each_kept<full>(terms, me, unit, position, [&](int64_t at, int j) {
                        if constexpr (GRAD_BIAS) {
                            from_acc(inner[j], grad_bias[at]);
                        }
                        if constexpr (GRAD_WEIGHT) {
                            from_acc(score[j], grad_weight[at]);
                        }
                    });
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (full || u < live) {
                        const acc_t a = from_spread(attention, u);
                        const acc_t ds = from_spread(inner, u);
                        for_each_element(
                            [&](int k, int v) { value[k][v] += a * element(grads[u][k], v); });
                        for_each_above(
                            targets[u], floor, [&](int k, int v) { positive[k][v] += ds; });
                    }
                }
            });

        sum_ds = sum_over_spread(sum_ds);
        for_each_element([&](int k, int v) {
            const acc_t t = negative_slope * sum_ds + (1 - negative_slope) * positive[k][v];
            attn_share[k][v] -= floor.at(k, v) * t;
            value[k][v] += weight.at(k, v) * t;
        });
        scatter_over_slots<0, K>(me, value);
        if (unit.chunk >= 0) {
            store_piece(me, unit.chunk, value, part_grad);
        } else if (unit.row >= 0) {
            store_row(me, unit.row, value, grad_src);
        }
    });
    store_block_sum(me, attn_share, part_attn);
}
