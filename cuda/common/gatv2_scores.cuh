// gatv2_scores.cuh: the scores of GATv2, as all its kernels compute them.
// leaky_relu(x + y) = slope x + (1 - slope) max(x, -y) + y. The last part is the same for all edges of a
// row and cancels in the softmax, so scores here are
//   s[e,h] = log2(e) * (slope attn.x + (1 - slope) attn.max(x, -y) + bias[e,h]),
// with x = feat_src[u] and y = feat_dst[v]. The maximum of two numbers is one of them: in 16 bits, too,
// it loses nothing, and both products are for the tensor cores.
// Prelude: those of edge_terms.cuh
#pragma once

#include "dots.cuh"
#include "edge_terms.cuh"

// 0, or NaN where the floor is no number. The maximum of a NaN and a number is the number, but for that
// of pairs; the forward adds this to the scores, and from then on the log-sum-exp is NaN.
__device__ inline acc_t doubt(const KeptRow& floor) {
    acc_t sum = NOTHING;
    if constexpr (!ON_TENSOR_CORES) {
        for_each_element([&](int k, int v) { sum = fma(NOTHING, floor.at(k, v), sum); });
    }
    return sum;
}

__device__ inline acc_t leaky(acc_t negative_slope, acc_t linear, acc_t larger) {
    return fma(negative_slope, linear, (1 - negative_slope) * larger);
}

// From shares to scores, spread over the lanes of each head.
__device__ inline void finish_scores(const KeptTerms& terms, acc_t (&score)[U]) {
    spread_shares(score);
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        score[j] *= LOG2E;
        if constexpr (EDGE_BIAS > 0) {
            score[j] += LOG2E * terms.bias[j];
        }
    }
}

// Shares of the scores of a destination's group, on top of what `score` comes with; `floor` is -feat_dst[v].
// Where elements are looked at one by one, also(u, x, k, v) sees them, too.
template <bool FULL, class Also>
__device__ inline void share_scores(
    acc_t negative_slope,
    const KeptRow& attn,
    const KeptRow& floor,
    const Gathered& sources,
    int live,
    acc_t (&score)[U],
    Also also) {
    const auto& rows = sources.rows;
    if constexpr (ON_TENSOR_CORES) {
        for_each_edge_pair<FULL>(live, [&](int p) {
            const auto& first = rows[2 * p];
            const auto& second = rows[2 * p + 1];
            Products linear = {};
            Products larger = {};
#pragma unroll
            for (int k = 0; k < K; ++k) {
                const packet_t& column = attn.packets[k];
                const packet_t& low = floor.packets[k];
                multiply_add(linear, first[k], second[k], column);
                multiply_add(
                    larger, by_pairs(first[k], low, larger_pair<scalar_t>),
                    by_pairs(second[k], low, larger_pair<scalar_t>), column);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                linear.first[i] = leaky(negative_slope, linear.first[i], larger.first[i]);
                linear.second[i] = leaky(negative_slope, linear.second[i], larger.second[i]);
            }
            score[2 * p] += own_product<true>(linear.first);
            score[2 * p + 1] += own_product<true>(linear.second);
        });
    } else {
        acc_t linear[U] = {};
        acc_t larger[U] = {};
        for_each_edge_element<FULL>(live, [&](int u, int k, int v) {
            const acc_t x = element(rows[u][k], v);
            linear[u] += attn.at(k, v) * x;
            larger[u] += attn.at(k, v) * largest(x, floor.at(k, v));
            also(u, x, k, v);
        });
#pragma unroll
        for (int u = 0; u < U; ++u) {
            score[u] += leaky(negative_slope, linear[u], larger[u]);
        }
    }
}

// This lane's share of attn.feat_src[u], which all edges of a source have in common; `floor` is -feat_src[u].
__device__ inline acc_t linear_part(const KeptRow& attn, const KeptRow& floor) {
    acc_t linear = NOTHING;
    for_each_element([&](int k, int v) { linear -= attn.at(k, v) * floor.at(k, v); });
    return ON_TENSOR_CORES ? sum_over_quad(linear) : linear;
}

template <bool FULL>
__device__ inline void share_scores(
    acc_t negative_slope,
    const KeptRow& attn,
    const KeptRow& floor,
    const Gathered& sources,
    int live,
    acc_t (&score)[U]) {
    share_scores<FULL>(
        negative_slope, attn, floor, sources, live, score, [](int, acc_t, int, int) {});
}

// Together with the shares of the products with `grad`.
template <bool FULL>
__device__ inline void share_scores_and_dots(
    acc_t negative_slope,
    const KeptRow& attn,
    const KeptRow& floor,
    const KeptRow& grad,
    const Gathered& sources,
    int live,
    acc_t (&score)[U],
    acc_t (&inner)[U]) {
    fill(score, NOTHING);
    fill(inner, NOTHING);
    share_scores<FULL>(
        negative_slope, attn, floor, sources, live, score,
        [&](int u, acc_t x, int k, int v) { inner[u] += grad.at(k, v) * x; });
    if constexpr (ON_TENSOR_CORES) {
        share_dots<FULL>(grad, sources, live, inner);
    }
}

// The same of a source's group.
template <bool FULL>
__device__ inline void share_scores_of_source(
    acc_t negative_slope,
    const KeptRow& attn,
    const KeptRow& floor,
    acc_t linear,
    const Gathered& targets,
    int live,
    acc_t (&score)[U]) {
    const auto& rows = targets.rows;
    acc_t larger[U] = {};
    if constexpr (ON_TENSOR_CORES) {
        for_each_edge_pair<FULL>(live, [&](int p) {
            Products smaller = {};  // max(x, -y) = -min(y, -x)
#pragma unroll
            for (int k = 0; k < K; ++k) {
                const packet_t& low = floor.packets[k];
                multiply_add(
                    smaller, by_pairs(rows[2 * p][k], low, smaller_pair<scalar_t>),
                    by_pairs(rows[2 * p + 1][k], low, smaller_pair<scalar_t>), attn.packets[k]);
            }
            larger[2 * p] = -own_product<true>(smaller.first);
            larger[2 * p + 1] = -own_product<true>(smaller.second);
        });
    } else {
        for_each_edge_element<FULL>(live, [&](int u, int k, int v) {
            larger[u] += attn.at(k, v) * largest(-floor.at(k, v), -element(rows[u][k], v));
        });
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        score[u] = leaky(negative_slope, linear, larger[u]);
    }
}

// body(k, v) where z > 0: where the row of an edge is above the floor, which needs no sum.
template <class Body>
__device__ inline void for_each_above(const packet_t (&row)[K], const KeptRow& floor, Body body) {
    if constexpr (ON_TENSOR_CORES && COMPARES_PAIRS<scalar_t>) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
#pragma unroll
            for (int v = 0; v < V; v += 2) {
                const PairAbove above = is_pair_above<scalar_t>(
                    reinterpret_cast<const uint32_t*>(&row[k])[v / 2],
                    reinterpret_cast<const uint32_t*>(&floor.packets[k])[v / 2]);
                if (above.low) {
                    body(k, v);
                }
                if (above.high) {
                    body(k, v + 1);
                }
            }
        }
    } else {
        for_each_element([&](int k, int v) {
            if (element(row[k], v) > floor.at(k, v)) {
                body(k, v);
            }
        });
    }
}

// What the rows of destinations read of a group.
struct Sources {
    KeptTerms terms;
    Gathered features;
};

template <bool FULL>
__device__ inline Sources load_sources(
    const scalar_t* __restrict__ feat_src,
    const index_t (&cols)[U],
    RowTerms& terms,
    const Lane& me,
    const Unit& unit,
    index_t position) {
    Sources sources;
    sources.terms = load_terms<FULL>(terms, me, unit, position);
    sources.features = gather<FULL>(feat_src, cols, me, unit, position);
    return sources;
}
