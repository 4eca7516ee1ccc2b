// dot_scores.cuh: the scores of dot-product attention, as all its kernels compute them.
//   score[e,h] = scale * queries[v,h].keys[u,h] + bias[e,h], or * bias[e,h] with MULTIPLY
// With SAME_ROWS keys are values, and an edge reads one row.
// Prelude: those of edge_terms.cuh, MULTIPLY, SAME_ROWS
#pragma once

#include "dots.cuh"
#include "edge_terms.cuh"

// What the rows of destinations read of a group.
struct Sources {
    KeptTerms terms;
    Gathered keys;
    Gathered values;

    __device__ const Gathered& summed() const {
        return SAME_ROWS ? keys : values;
    }
};

template <bool FULL>
__device__ inline Sources load_sources(
    const scalar_t* __restrict__ keys,
    const scalar_t* __restrict__ values,
    const index_t (&cols)[U],
    RowTerms& terms,
    const Lane& me,
    const Unit& unit,
    index_t position) {
    Sources sources;
    sources.terms = load_terms<FULL>(terms, me, unit, position);
    sources.keys = gather<FULL>(keys, cols, me, unit, position);
    if constexpr (!SAME_ROWS) {
        sources.values = gather<FULL>(values, cols, me, unit, position);
    }
    return sources;
}

// The scale of base-2 scores, rounded once.
__device__ inline acc_t to_base2(acc_t scale) {
    return static_cast<acc_t>(1.4426950408889634073599 * static_cast<double>(scale));
}

// From a dot product to a base-2 score, less `base`, rounded once where there is no bias.
__device__ inline acc_t score_above(
    acc_t base,
    acc_t dot,
    acc_t scale2,
    const KeptTerms& terms,
    int j) {
    if constexpr (EDGE_BIAS == 0) {
        return fma(scale2, dot, -base);
    }
    return MULTIPLY ? fma(scale2 * terms.bias[j], dot, -base)
                    : fma(scale2, dot, fma(LOG2E, terms.bias[j], -base));
}

// What a score grows by with its dot product, but for the scale.
__device__ inline acc_t growth_of(const KeptTerms& terms, int j) {
    return EDGE_BIAS > 0 && MULTIPLY ? terms.bias[j] : static_cast<acc_t>(1);
}
