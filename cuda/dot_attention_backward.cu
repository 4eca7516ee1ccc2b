// dot_attention_backward.cu: the gradients of dot_attention.cu, in two passes without atomics or edge-sized
// memory.
// With i[e,h] = grad_out[v].values[u] (+ grad_attention[e,h]), x = keep weight i,
// delta[v] = sum_e p x, ds = p (x - delta), and b the bias where it is a factor, else 1:
//   grad_queries[v] = scale sum_e ds b keys[u]                   (by destination, see centered_sums.cuh)
//   grad_keys[u] = scale sum_e ds b queries[v]                   (by source)
//   grad_values[u] = sum_e a grad_out[v]
//   grad_bias[e] = ds, or ds scale queries[v].keys[u];  grad_weight[e] = p keep i
// Prelude: as dot_attention.cu, and GRAD_ATTENTION, GRAD_BIAS, GRAD_WEIGHT
#include "common/centered_sums.cuh"
#include "common/dot_scores.cuh"

static_assert(SLICES == 1, "a score needs the whole head");

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) dot_attention_backward_dst(
    const scalar_t* __restrict__ queries,  // (N_dst, H, D)
    const scalar_t* __restrict__ keys,     // (N_src, H, D)
    const scalar_t* __restrict__ values,   // (N_src, H, D)
    const acc_t scale,
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
    scalar_t* __restrict__ grad_queries,  // (N_dst, H, D)
    acc_t* __restrict__ row_state,        // (N_dst, H, 2): 1 / sum of p, and delta
    acc_t* __restrict__ part_sums,        // (num_chunks, 2, H, D): sums of p x and of p, times keys
    acc_t* __restrict__ part_totals) {    // (num_chunks, H, 2): sums of p x and of p
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
        const KeptRow grad = keep_row(grad_out, unit.row, me, any);
        const acc_t row_lse = any && owns_head(me) ? lse[head_offset(unit.row, me)] : NOTHING;

        CenteredSums<K, V> sums = no_sums<K, V>();  // the g of an edge is its key
        const auto load = [&](auto kind, const index_t(&cols)[U], index_t position) {
            return load_sources<decltype(kind)::value>(
                keys, values, cols, terms, me, unit, position);
        };
        for_each_gathered(
            unit, me, fetch, load,
            [&](auto kind, const Sources& sources, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                acc_t p[U];
                acc_t inner[U];
                share_dots<full>(query, sources.keys, live, p);
                share_dots<full>(grad, sources.summed(), live, inner);
                spread_shares(p);
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
                    const acc_t s = score_above(row_lse, p[j], scale2, sources.terms, j);
                    p[j] = exists ? fast_exp2(s) : NOTHING;
                    inner[j] = p[j] * (inner[j] - sums.shift);
                    sums.total += p[j];
                    sums.inner += inner[j];
                    p[j] *= growth_of(sources.terms, j);
                    inner[j] *= growth_of(sources.terms, j);
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (full || u < live) {
                        const acc_t grown = from_spread(p, u);
                        const acc_t weighted = from_spread(inner, u);
                        for_each_element([&](int k, int v) {
                            const acc_t key = element(sources.keys.rows[u][k], v);
                            sums.picked[k][v] += grown * key;
                            sums.inner_picked[k][v] += weighted * key;
                        });
                    }
                }
                recenter(sums, nth + 1);
            });

        const RowTotals totals = totals_of(sums);
        if (!in_chunk_block(adj)) {
            const acc_t factor = any ? scale / totals.total : NOTHING;
            const acc_t delta = any ? totals.inner / totals.total : NOTHING;  // from the shift on
            for_each_element([&](int k, int v) {
                sums.picked[k][v] = factor * (sums.inner_picked[k][v] - delta * sums.picked[k][v]);
            });
            scatter_over_slots<0, K>(me, sums.picked);
            if (unit.row >= 0) {
                store_row(me, unit.row, sums.picked, grad_queries);
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
}

// What the rows of sources read of a group.
struct Ends {
    EndStates states;
    KeptTerms terms;
    Gathered queries;
    Gathered grads;
};

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) dot_attention_backward_src(
    const scalar_t* __restrict__ queries,  // (N_dst, H, D)
    const scalar_t* __restrict__ keys,     // (N_src, H, D)
    const scalar_t* __restrict__ values,   // (N_src, H, D)
    const acc_t scale,
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
    scalar_t* __restrict__ grad_keys,         // (N_src, H, D)
    scalar_t* __restrict__ grad_values,       // (N_src, H, D)
    bias_grad_t* __restrict__ grad_bias,      // (E, H), edge-id order
    weight_grad_t* __restrict__ grad_weight,  // (E, H), edge-id order
    acc_t* __restrict__ part_keys,            // (num_chunks, H, D)
    acc_t* __restrict__ part_values) {        // (num_chunks, H, D)
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
        const KeptRow key = keep_row(keys, unit.row, me, any);
        const KeptRow value = keep_row(values, unit.row, me, any);

        acc_t key_sum[K][V];    // sum of ds b * queries
        acc_t value_sum[K][V];  // sum of a * grad_out
        clear(key_sum);
        clear(value_sum);
        const auto load = [&](auto kind, const index_t(&cols)[U], index_t position) {
            constexpr bool full = decltype(kind)::value;
            Ends ends;
            ends.states = load_states<full>(lse, row_state, cols, me, unit, position);
            ends.terms = load_terms<full>(terms, me, unit, position);
            ends.queries = gather<full>(queries, cols, me, unit, position);
            ends.grads = gather<full>(grad_out, cols, me, unit, position);
            return ends;
        };
        for_each_gathered(
            unit, me, fetch, load, [&](auto kind, const Ends& ends, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                acc_t dot[U];
                acc_t inner[U];
                share_dots<full>(key, ends.queries, live, dot);
                share_dots<full>(value, ends.grads, live, inner);
                spread_shares(dot);
                spread_shares(inner);
                acc_t attention[U];
                acc_t ds[U];
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    const bool exists = keeps_edge<full>(unit, position, j);
                    const acc_t s = score_above(ends.states.lse[j], dot[j], scale2, ends.terms, j);
                    const acc_t p = exists ? ends.states.softmax(j, s) : NOTHING;
                    if constexpr (GRAD_ATTENTION) {
                        inner[j] += kept_number<full>(grad_attention, terms, me, unit, position, j);
                    }
                    attention[j] = p * factor_of(ends.terms, j);
                    ds[j] = p * ends.states.centered(j, weighted_inner(ends.terms, j, inner[j]));
                    inner[j] *= p * ends.terms.keep[j];  // the gradient of the weight
                }
                if constexpr (GRAD_BIAS || GRAD_WEIGHT) {
                    for_each_kept<full>(terms, me, unit, position, [&](int64_t at, int j) {
                        if constexpr (GRAD_BIAS) {
                            from_acc(MULTIPLY ? ds[j] * scale * dot[j] : ds[j], grad_bias[at]);
                        }
                        if constexpr (GRAD_WEIGHT) {
                            from_acc(inner[j], grad_weight[at]);
                        }
                    });
                }
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    ds[j] *= growth_of(ends.terms, j);
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (full || u < live) {
                        const acc_t a = from_spread(attention, u);
                        const acc_t d = from_spread(ds, u);
                        for_each_element([&](int k, int v) {
                            value_sum[k][v] += a * element(ends.grads.rows[u][k], v);
                            key_sum[k][v] += d * element(ends.queries.rows[u][k], v);
                        });
                    }
                }
            });

        for_each_element([&](int k, int v) { key_sum[k][v] *= scale; });
        scatter_over_slots<0, K>(me, key_sum);
        scatter_over_slots<0, K>(me, value_sum);
        if (unit.chunk >= 0) {
            store_piece(me, unit.chunk, key_sum, part_keys);
            store_piece(me, unit.chunk, value_sum, part_values);
        } else if (unit.row >= 0) {
            store_row(me, unit.row, key_sum, grad_keys);
            store_row(me, unit.row, value_sum, grad_values);
        }
    });
}
