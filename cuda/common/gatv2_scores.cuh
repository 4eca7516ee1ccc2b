// gatv2_scores.cuh: the scores of GATv2, as all its kernels compute them.
// leaky_relu(z) = c1 z + c2 |z| with c1 = (1 + slope) / 2, c2 = (1 - slope) / 2. The part
// c1 attn.feat_dst[v] is the same for all edges of a row and cancels in the softmax, so scores here are
//   s[e,h] = log2(e) * (c1 attn.feat_src[u] + c2 sum_d attn[h,d] |z[e,h,d]| + bias[e,h]).
// Prelude: those of edge_terms.cuh
#pragma once

#include "edge_terms.cuh"

// From this lane's shares of sum attn.x and sum attn.|z| to scores without the part that cancels, spread
// over the lanes of each head.
__device__ inline void finish_scores(
    acc_t negative_slope,
    const KeptTerms& terms,
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
        if constexpr (EDGE_BIAS > 0) {
            score[j] += LOG2E * terms.bias[j];
        }
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
    const EdgeTerms& terms,
    const Lane& me,
    const Unit& unit,
    index_t position) {
    Sources sources;
    sources.terms = load_terms<FULL>(terms, me, unit, position);
    sources.features = gather<FULL>(feat_src, cols, me, unit, position);
    return sources;
}
