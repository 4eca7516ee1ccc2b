// online_softmax.cuh: a softmax-weighted sum of rows, with scores that arrive a group at a time.
// Each edge slot keeps its own state; the slots of a row meet once, when the row ends.
// Prelude: those of lanes.cuh
#pragma once

#include "lanes.cuh"

// Running softmax state of one edge slot: maximum, sum of exponentials, weighted sum of rows.
struct SoftmaxState {
    acc_t top;
    acc_t total;
    acc_t sum[K][V];
};

__device__ inline SoftmaxState no_edges() {
    SoftmaxState state;
    state.top = minus_infinity();
    state.total = NOTHING;
    clear(state.sum);
    return state;
}

// Raise the running maximum to at least `top` and bring the sums to the new scale, once a group rather
// than once an edge. Returns what to subtract from the group's scores.
__device__ inline acc_t raise_top(SoftmaxState& state, acc_t top) {
    top = largest(top, state.top);
    // A slot that has seen no edge yet has no maximum: any finite one will do.
    const acc_t base = top == minus_infinity() ? NOTHING : top;
    const acc_t scale = fast_exp2(state.top - base);
    state.top = top;
    state.total *= scale;
    for_each_element([&](int k, int v) { state.sum[k][v] *= scale; });
    return base;
}

// Bring the states of all edge slots of a row together; afterwards sum[] is shared out among slots.
__device__ inline void merge_slots(const Lane& me, SoftmaxState& state) {
    if constexpr (S > 1) {
        const acc_t top = largest_over_slots(state.top);
        const acc_t scale = state.top == minus_infinity() ? NOTHING : fast_exp2(state.top - top);
        state.top = top;
        state.total = sum_over_slots(state.total * scale);
        for_each_element([&](int k, int v) { state.sum[k][v] *= scale; });
        scatter_over_slots<0, K>(me, state.sum);
    }
}
