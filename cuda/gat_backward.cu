// gat_backward.cu: the gradients of gat.cu, in two passes without atomics or edge-sized memory.
// With i[e,h] = grad_out[v].feat_src[u] (+ grad_attention[e,h]), x = keep weight i,
// delta[v] = sum_e p x and ds = p (x - delta) leaky_relu'(z):
//   grad_er[v] = sum_e ds                                      (by destination, see centered_sums.cuh)
//   grad_el[u] = sum_e ds,  grad_src[u] = sum_e a grad_out[v]  (by source)
//   grad_bias[e] = ds,  grad_weight[e] = p keep i              (by source)
// Prelude: as gat.cu, and GRAD_ATTENTION, GRAD_BIAS, GRAD_WEIGHT
#include "common/centered_sums.cuh"
#include "common/dots.cuh"
#include "common/gat_scores.cuh"

static_assert(SLICES == 1, "the gradient of a score needs the whole head");

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gat_backward_dst(
    const scalar_t* __restrict__ feat_src,  // (N_src, H, D)
    const scalar_t* __restrict__ el,        // (N_src, H)
    const scalar_t* __restrict__ er,        // (N_dst, H)
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
    scalar_t* __restrict__ grad_er,     // (N_dst, H)
    acc_t* __restrict__ row_state,      // (N_dst, H, 2): 1 / sum of p, and delta
    acc_t* __restrict__ part_sums,      // (num_chunks, 2, H): sums of p x and p, times the slope
    acc_t* __restrict__ part_totals) {  // (num_chunks, H, 2): sums of p x and of p
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const EdgeTerms edge_terms =
        make_terms(edge_bias, edge_weight, eids, seed, drop_below, keep_scale);
    const Lane me = this_lane();
    const auto fetch = [&](index_t position) { return indices[position]; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        RowTerms terms = begin_row(edge_terms, me, unit);
        const bool any = unit.begin < unit.end;
        const KeptRow grad = keep_row(grad_out, unit.row, me, any);
        const acc_t right = number_of_row(er, unit, me);
        const acc_t row_lse = any && owns_head(me) ? lse[head_offset(unit.row, me)] : NOTHING;

        CenteredSums<1, 1> sums = no_sums<1, 1>();  // the g of an edge is the slope at its z
        const auto load = [&](auto kind, const index_t(&cols)[U], index_t position) {
            constexpr bool full = decltype(kind)::value;
            Sources sources;
            load_scores<full>(el, cols, terms, me, unit, position, sources);
            sources.features = gather<full>(feat_src, cols, me, unit, position);
            return sources;
        };
        for_each_gathered(
            unit, me, fetch, load,
            [&](auto kind, const Sources& sources, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                acc_t inner[U];
                share_dots<full>(grad, sources.features, live, inner);
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
                    acc_t slope;
                    const acc_t s = score_of(sources, right, negative_slope, j, slope);
                    const acc_t p =
                        keeps_edge<full>(unit, position, j) ? fast_exp2(s - row_lse) : NOTHING;
                    const acc_t weighted = p * (inner[j] - sums.shift);
                    sums.total += p;
                    sums.inner += weighted;
                    sums.picked[0][0] += p * slope;
                    sums.inner_picked[0][0] += weighted * slope;
                }
                recenter(sums, nth + 1);
            });

        const bool piece = in_chunk_block(adj);
        const RowTotals totals = totals_of(sums);
        const acc_t shift = sums.shift;
        if (piece) {
            move_shift(sums, -shift);
        }
        const acc_t picked = sum_over_slots(sum_over_spread(sums.picked[0][0]));
        const acc_t inner_picked = sum_over_slots(sum_over_spread(sums.inner_picked[0][0]));
        if (piece) {
            if (unit.chunk >= 0 && writes_head(me)) {
                part_sums[head_offset(2 * unit.chunk, me)] = inner_picked;
                part_sums[head_offset(2 * unit.chunk + 1, me)] = picked;
            }
            store_piece_totals(me, unit, totals, shift, part_totals);
        } else {
            if (unit.row >= 0 && writes_head(me)) {
                const acc_t delta = totals.inner / totals.total;  // relative to the shift
                const acc_t sum = any ? (inner_picked - delta * picked) / totals.total : NOTHING;
                from_acc(sum, grad_er[head_offset(unit.row, me)]);
            }
            store_row_state(me, unit, totals, shift, row_state);
        }
    });
}

// What the rows of sources read of a group.
struct Ends {
    acc_t right[PER_LANE];
    EndStates states;
    KeptTerms terms;
    Gathered grads;
};

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gat_backward_src(
    const scalar_t* __restrict__ feat_src,  // (N_src, H, D)
    const scalar_t* __restrict__ el,        // (N_src, H)
    const scalar_t* __restrict__ er,        // (N_dst, H)
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
    scalar_t* __restrict__ grad_el,           // (N_src, H)
    bias_grad_t* __restrict__ grad_bias,      // (E, H), edge-id order
    weight_grad_t* __restrict__ grad_weight,  // (E, H), edge-id order
    acc_t* __restrict__ part_grad,            // (num_chunks, H, D)
    acc_t* __restrict__ part_el) {            // (num_chunks, H)
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const EdgeTerms edge_terms =
        make_terms(edge_bias, edge_weight, eids, seed, drop_below, keep_scale);
    const Lane me = this_lane();
    const auto fetch = [&](index_t position) { return indices[position]; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        RowTerms terms = begin_row(edge_terms, me, unit);
        const KeptRow source = keep_row(feat_src, unit.row, me, unit.begin < unit.end);
        const acc_t left = number_of_row(el, unit, me);

        acc_t sum_ds = NOTHING;
        acc_t value[K][V];  // sum of a * grad_out
        clear(value);
        const auto load = [&](auto kind, const index_t(&cols)[U], index_t position) {
            constexpr bool full = decltype(kind)::value;
            Ends ends;
            load_kept<full>(er, cols, me, unit, position, ends.right);
            ends.states = load_states<full>(lse, row_state, cols, me, unit, position);
            ends.terms = load_terms<full>(terms, me, unit, position);
            ends.grads = gather<full>(grad_out, cols, me, unit, position);
            return ends;
        };
        for_each_gathered(
            unit, me, fetch, load, [&](auto kind, const Ends& ends, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                acc_t inner[U];
                share_dots<full>(source, ends.grads, live, inner);
                spread_shares(inner);
                acc_t attention[U];
                acc_t p[PER_LANE];
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    const acc_t z = left + ends.right[j] + ends.terms.bias[j];
                    const acc_t slope = slope_at(z, negative_slope);
                    const bool exists = keeps_edge<full>(unit, position, j);
                    p[j] = exists ? ends.states.softmax(j, LOG2E * (z * slope) - ends.states.lse[j])
                                  : NOTHING;
                    if constexpr (GRAD_ATTENTION) {
                        inner[j] += kept_number<full>(grad_attention, terms, me, unit, position, j);
                    }
                    attention[j] = p[j] * factor_of(ends.terms, j);
                    sum_ds += p[j] * slope *
                              ends.states.centered(j, weighted_inner(ends.terms, j, inner[j]));
                }
                if constexpr (GRAD_BIAS || GRAD_WEIGHT) {
                    for_each_kept<full>(terms, me, unit, position, [&](int64_t at, int j) {
                        const acc_t z = left + ends.right[j] + ends.terms.bias[j];
                        const acc_t slope = slope_at(z, negative_slope);
                        const acc_t x = weighted_inner(ends.terms, j, inner[j]);
                        if constexpr (GRAD_BIAS) {
                            from_acc(p[j] * slope * ends.states.centered(j, x), grad_bias[at]);
                        }
                        if constexpr (GRAD_WEIGHT) {
                            from_acc(p[j] * ends.terms.keep[j] * inner[j], grad_weight[at]);
                        }
                    });
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (full || u < live) {
                        const acc_t a = from_spread(attention, u);
                        for_each_element([&](int k, int v) {
                            value[k][v] += a * element(ends.grads.rows[u][k], v);
                        });
                    }
                }
            });

        sum_ds = sum_over_slots(sum_over_spread(sum_ds));
        scatter_over_slots<0, K>(me, value);
        if (unit.chunk >= 0) {
            store_piece(me, unit.chunk, value, part_grad);
            if (writes_head(me)) {
                part_el[head_offset(unit.chunk, me)] = sum_ds;
            }
        } else if (unit.row >= 0) {
            store_row(me, unit.row, value, grad_src);
            if (writes_head(me)) {
                from_acc(sum_ds, grad_el[head_offset(unit.row, me)]);
            }
        }
    });
}
