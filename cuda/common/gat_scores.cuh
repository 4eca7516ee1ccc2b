// gat_scores.cuh: the scores of GAT, as its kernels by destination compute them.
//   score[e,h] = leaky_relu(el[u,h] + er[v,h] + bias[e,h])
// They are numbers of the ends, computed by the lanes that keep an edge.
// Prelude: those of edge_terms.cuh
#pragma once

#include "edge_terms.cuh"

__device__ inline acc_t slope_at(acc_t z, acc_t negative_slope) {
    return z > 0 ? static_cast<acc_t>(1) : negative_slope;
}

// What the rows of destinations read of a group.
struct Sources {
    acc_t left[PER_LANE];
    KeptTerms terms;
    Gathered features;
};

__device__ inline acc_t score_of(
    const Sources& sources,
    acc_t right,
    acc_t negative_slope,
    int j,
    acc_t& slope) {
    const acc_t z = sources.left[j] + right + sources.terms.bias[j];
    slope = slope_at(z, negative_slope);
    return LOG2E * (z * slope);
}

template <bool FULL>
__device__ inline void load_scores(
    const scalar_t* __restrict__ el,
    const index_t (&cols)[U],
    RowTerms& terms,
    const Lane& me,
    const Unit& unit,
    index_t position,
    Sources& sources) {
    load_kept<FULL>(el, cols, me, unit, position, sources.left);
    sources.terms = load_terms<FULL>(terms, me, unit, position);
}
