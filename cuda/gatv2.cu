// gatv2.cu: GATv2 attention (Brody, Alon, Yahav 2022), forward and backward, without edge-sized memory.
//   z[e,h,d]   = feat_src[u,h,d] + feat_dst[v,h,d],  e = (u -> v)
//   score[e,h] = sum_d attn[h,d] * leaky_relu(z[e,h,d])
//   out[v,h,:] = sum_e softmax_e(score[e,h]) * feat_src[u,h,:]
// Lanes own elements as in lanes.cuh; a slot of lanes owns a row and walks its edges once.
//
// Numerics. leaky_relu(z) = c1 z + c2 |z| with c1 = (1 + slope) / 2, c2 = (1 - slope) / 2. The part
// c1 attn.feat_dst[v] is the same for all edges of a row and cancels in the softmax, so scores here are
//   s[e,h] = log2(e) * (c1 attn.feat_src[u] + c2 sum_d attn[h,d] |z[e,h,d]|),
// and lse is the base-2 log-sum-exp of these. The softmax is online: a running maximum per edge slot.
//
// Gradients. With p the softmax, i[e,h] = grad_out[v].feat_src[u], delta[v] = sum_e p i,
// ds = p (i - delta) and t[e,h,d] = ds leaky_relu'(z) = ds (slope + (1 - slope) [z > 0]):
//   grad_dst[v] = attn * sum_e t                         (by destination)
//   grad_src[u] = attn * sum_e t + sum_e p grad_out[v]   (by source)
//   grad_attn   = sum_v feat_dst[v] * sum_e t + sum_u feat_src[u] * sum_e t
// The last line needs no work per edge: both sums over t are at hand when a row ends. By destination
// sum_e ds = 0, so that only the edges with z > 0 count:
//   sum_e t = (1 - slope) (sum_{z>0} p i - delta sum_{z>0} p) / sum_e p.
// Dividing by the sum of the very p that were added up makes the rounding of lse and of the scores
// cancel, and the forward's output is not needed. i is taken relative to about its mean over the row
// (centered_sums.cuh), so that the difference is one of small numbers. By source the scores are added up
// in the same order, so that p is the same again, and divided by the same sum.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, SLICES (1), WARPS, MIN_BLOCKS,
// AHEAD
#include "common/block_sum.cuh"
#include "common/centered_sums.cuh"
#include "common/online_softmax.cuh"
#include "common/rows.cuh"

static_assert(SLICES == 1, "a score needs the whole head");

// From this lane's shares of sum attn.x and sum attn.|z| to scores without the part that cancels, spread
// over the lanes of each head.
__device__ inline void finish_scores(
    acc_t negative_slope,
    const acc_t (&folded)[U],
    acc_t (&score)[U]) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        score[u] = fma(1 + negative_slope, score[u], (1 - negative_slope) * folded[u]);
    }
    spread_over_head(score);
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        score[j] *= LOG2E / 2;
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gatv2_forward(
    const scalar_t* __restrict__ feat_src,  // (N_src, H, D)
    const scalar_t* __restrict__ feat_dst,  // (N_dst, H, D)
    const scalar_t* __restrict__ attn,      // (H, D)
    const acc_t negative_slope,
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
    const Lane me = this_lane();
    acc_t weight[K][V];
    load_row(attn, 0, me, true, weight);

    const auto fetch = [&](index_t position) { return indices[position]; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        SoftmaxState state = no_edges();
        acc_t target[K][V];
        load_row(feat_dst, unit.row, me, unit.begin < unit.end, target);

        const auto load = [&](auto kind, const index_t(&cols)[U], index_t position) {
            return gather<decltype(kind)::value>(feat_src, cols, me, unit, position);
        };
        for_each_gathered(
            unit, me, fetch, load,
            [&](auto kind, const Gathered& sources, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                const auto& rows = sources.rows;
                acc_t score[U] = {};
                acc_t folded[U] = {};
                for_each_edge_element<full>(live, [&](int u, int k, int v) {
                    const acc_t x = element(rows[u][k], v);
                    score[u] += weight[k][v] * x;
                    folded[u] += weight[k][v] * magnitude(x + target[k][v]);
                });
                finish_scores(negative_slope, folded, score);
                acc_t top = minus_infinity();
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    if (!full && spread_position(position, j) >= unit.end) {
                        score[j] = minus_infinity();
                    }
                    top = largest(top, score[j]);
                }
                const acc_t base = raise_top(state, largest_over_spread(top));
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    score[j] = fast_exp2(score[j] - base);
                    state.total += score[j];
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (full || u < live) {
                        const acc_t p = from_spread(score, u);
                        for_each_element(
                            [&](int k, int v) { state.sum[k][v] += p * element(rows[u][k], v); });
                    }
                }
            });

        state.total = sum_over_spread(state.total);
        merge_slots(me, state);
        if (unit.row < 0) {
            return;
        }
        const bool whole = unit.chunk < 0;
        if (whole) {
            const acc_t inverse = unit.begin < unit.end ? 1 / state.total : NOTHING;
            for_each_element([&](int k, int v) { state.sum[k][v] *= inverse; });
            store_row(me, unit.row, state.sum, out);
        } else {
            store_piece(me, unit.chunk, state.sum, part_sum);
        }
        if (me.element == 0 && me.edge_slot == 0 && owns_head(me)) {
            if (whole) {
                lse[head_offset(unit.row, me)] =
                    unit.begin < unit.end ? state.top + log2(state.total) : NOTHING;
            } else {
                acc_t* at = part_state + head_offset(unit.chunk, me) * 2;
                at[0] = state.top;
                at[1] = state.total;
            }
        }
    });
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gatv2_backward_dst(
    const scalar_t* __restrict__ feat_src,  // (N_src, H, D)
    const scalar_t* __restrict__ feat_dst,  // (N_dst, H, D)
    const scalar_t* __restrict__ attn,      // (H, D)
    const scalar_t* __restrict__ grad_out,  // (N_dst, H, D)
    const acc_t* __restrict__ lse,          // (N_dst, H), base 2
    const acc_t negative_slope,
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
    acc_t* __restrict__ row_state,  // (N_dst, H, 2): 1 / sum of p, and delta, for the pass by source
    acc_t* __restrict__ part_sums,    // (num_chunks, 2, H, D): sums of p i and of p over z > 0
    acc_t* __restrict__ part_totals,  // (num_chunks, H, 2): sums of p i and of p
    acc_t* __restrict__ part_attn) {  // (gridDim.x, H, D)
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    acc_t weight[K][V];
    load_row(attn, 0, me, true, weight);
    acc_t attn_share[K][V];
    clear(attn_share);

    const auto fetch = [&](index_t position) { return indices[position]; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        const bool any = unit.begin < unit.end;
        acc_t target[K][V];
        acc_t grad[K][V];
        load_row(feat_dst, unit.row, me, any, target);
        load_row(grad_out, unit.row, me, any, grad);
        const acc_t row_lse = any && owns_head(me) ? lse[head_offset(unit.row, me)] : NOTHING;

        CenteredSums sums = no_sums();  // of p and p i, and of those over edges with z > 0
        const auto load = [&](auto kind, const index_t(&cols)[U], index_t position) {
            return gather<decltype(kind)::value>(feat_src, cols, me, unit, position);
        };
        for_each_gathered(
            unit, me, fetch, load,
            [&](auto kind, const Gathered& sources, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                const auto& rows = sources.rows;
                acc_t score[U] = {};
                acc_t folded[U] = {};
                acc_t inner[U] = {};
                for_each_edge_element<full>(live, [&](int u, int k, int v) {
                    const acc_t x = element(rows[u][k], v);
                    score[u] += weight[k][v] * x;
                    folded[u] += weight[k][v] * magnitude(x + target[k][v]);
                    inner[u] += grad[k][v] * x;
                });
                finish_scores(negative_slope, folded, score);
                spread_over_head(inner);
                const index_t nth = (position - unit.begin) / GROUP;
                if (nth == 0) {
                    sums.shift = from_first_slot(from_spread(inner, 0));
                }
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    const bool exists = full || spread_position(position, j) < unit.end;
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
                        for_each_element([&](int k, int v) {
                            // z > 0 without the sum
                            if (element(rows[u][k], v) > -target[k][v]) {
                                sums.picked[k][v] += p;
                                sums.inner_picked[k][v] += weighted;
                            }
                        });
                    }
                }
                recenter(sums, nth + 1);
            });

        const acc_t total = sum_over_slots(sum_over_spread(sums.total));
        const acc_t inner = sum_over_slots(sum_over_spread(sums.inner));
        const bool states = me.element == 0 && me.edge_slot == 0 && owns_head(me);
        if (!in_chunk_block(adj)) {
            const acc_t scale = any ? (1 - negative_slope) / total : NOTHING;
            const acc_t delta = any ? inner / total : NOTHING;  // relative to the shift
            for_each_element([&](int k, int v) {
                const acc_t t = scale * (sums.inner_picked[k][v] - delta * sums.picked[k][v]);
                attn_share[k][v] += target[k][v] * t;
                sums.picked[k][v] = weight[k][v] * t;
            });
            scatter_over_slots<0, K>(me, sums.picked);
            if (unit.row >= 0) {
                store_row(me, unit.row, sums.picked, grad_dst);
            }
            if (any && states) {
                acc_t* at = row_state + head_offset(unit.row, me) * 2;
                at[0] = 1 / total;
                at[1] = sums.shift + delta;
            }
        } else {
            // The pieces of a row agree on no shift: take it out again.
            const acc_t shift = sums.shift;
            move_shift(sums, -shift);
            scatter_over_slots<0, K>(me, sums.inner_picked);
            scatter_over_slots<0, K>(me, sums.picked);
            if (unit.chunk >= 0) {
                store_piece(me, 2 * unit.chunk, sums.inner_picked, part_sums);
                store_piece(me, 2 * unit.chunk + 1, sums.picked, part_sums);
                if (states) {
                    acc_t* at = part_totals + head_offset(unit.chunk, me) * 2;
                    at[0] = inner + shift * total;
                    at[1] = total;
                }
            }
        }
    });
    store_block_sum(me, attn_share, part_attn);
}

// What the pass by source reads of a group's destinations.
struct Ends {
    Gathered targets;
    Gathered grads;
    acc_t lse[PER_LANE];
    acc_t inverse[PER_LANE];
    acc_t delta[PER_LANE];
};

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gatv2_backward_src(
    const scalar_t* __restrict__ feat_src,  // (N_src, H, D)
    const scalar_t* __restrict__ feat_dst,  // (N_dst, H, D)
    const scalar_t* __restrict__ attn,      // (H, D)
    const scalar_t* __restrict__ grad_out,  // (N_dst, H, D)
    const acc_t* __restrict__ lse,          // (N_dst, H), base 2
    const acc_t* __restrict__ row_state,    // (N_dst, H, 2): 1 / sum of p, and delta
    const acc_t negative_slope,
    const index_t* __restrict__ indptr,        // (N_src + 1), of the reverse adjacency
    const index_t* __restrict__ indices,       // (E), destination of each position
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ grad_src,  // (N_src, H, D)
    acc_t* __restrict__ part_grad,    // (num_chunks, H, D)
    acc_t* __restrict__ part_attn) {  // (gridDim.x, H, D)
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    acc_t weight[K][V];
    load_row(attn, 0, me, true, weight);
    acc_t attn_share[K][V];
    clear(attn_share);

    const auto fetch = [&](index_t position) { return indices[position]; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        acc_t source[K][V];
        load_row(feat_src, unit.row, me, unit.begin < unit.end, source);
        acc_t linear = NOTHING;  // this lane's share of attn.feat_src[u]
        for_each_element([&](int k, int v) { linear += weight[k][v] * source[k][v]; });

        acc_t sum_ds = NOTHING;
        acc_t positive[K][V];  // sum of ds over edges with z > 0
        acc_t value[K][V];     // sum of p * grad_out
        clear(positive);
        clear(value);
        const auto load = [&](auto kind, const index_t(&cols)[U], index_t position) {
            constexpr bool full = decltype(kind)::value;
            Ends ends{
                gather<full>(feat_dst, cols, me, unit, position),
                gather<full>(grad_out, cols, me, unit, position)};
#pragma unroll
            for (int j = 0; j < PER_LANE; ++j) {
                ends.lse[j] = NOTHING;
                ends.inverse[j] = NOTHING;
                ends.delta[j] = NOTHING;
                if ((full || spread_position(position, j) < unit.end) && owns_head(me)) {
                    const int64_t at = head_offset(pick_spread(cols, j), me);
                    ends.lse[j] = __ldg(lse + at);
                    ends.inverse[j] = __ldg(row_state + 2 * at);
                    ends.delta[j] = __ldg(row_state + 2 * at + 1);
                }
            }
            return ends;
        };
        for_each_gathered(
            unit, me, fetch, load, [&](auto kind, const Ends& ends, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                const auto& targets = ends.targets.rows;
                const auto& grads = ends.grads.rows;
                acc_t score[U];
                acc_t folded[U] = {};
                acc_t inner[U] = {};
                fill(score, linear);
                for_each_edge_element<full>(live, [&](int u, int k, int v) {
                    const acc_t z = element(targets[u][k], v) + source[k][v];
                    folded[u] += weight[k][v] * magnitude(z);
                    inner[u] += source[k][v] * element(grads[u][k], v);
                });
                finish_scores(negative_slope, folded, score);
                spread_over_head(inner);
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) {
                    const bool exists = full || spread_position(position, j) < unit.end;
                    score[j] =
                        exists ? fast_exp2(score[j] - ends.lse[j]) * ends.inverse[j] : NOTHING;
                    inner[j] = score[j] * (inner[j] - ends.delta[j]);
                    sum_ds += inner[j];
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (full || u < live) {
                        const acc_t p = from_spread(score, u);
                        const acc_t ds = from_spread(inner, u);
                        for_each_element([&](int k, int v) {
                            value[k][v] += p * element(grads[u][k], v);
                            if (element(targets[u][k], v) > -source[k][v]) {
                                positive[k][v] += ds;
                            }
                        });
                    }
                }
            });

        sum_ds = sum_over_spread(sum_ds);
        for_each_element([&](int k, int v) {
            const acc_t t = negative_slope * sum_ds + (1 - negative_slope) * positive[k][v];
            attn_share[k][v] += source[k][v] * t;
            value[k][v] += weight[k][v] * t;
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
