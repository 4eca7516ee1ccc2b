// online_softmax.cuh: a softmax-weighted sum of rows, with scores that arrive a group at a time.
// Each edge slot keeps its own state; the slots of a row meet once, when the row ends.
// Prelude: those of rows.cuh
#pragma once

#include "rows.cuh"

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

// Take a group's scores, base 2 and spread over the lanes of each head, into the maximum and the total;
// they become p, relative to the maximum so far.
template <bool FULL>
__device__ inline void absorb_scores(
    const Unit& unit,
    index_t position,
    SoftmaxState& state,
    acc_t (&score)[U]) {
    acc_t top = minus_infinity();
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        if (!FULL && spread_position(position, j) >= unit.end) {
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
}

// Add the group's rows, each with its attention.
template <bool FULL>
__device__ inline void absorb_rows(
    SoftmaxState& state,
    const acc_t (&attention)[U],
    const Gathered& gathered,
    int live) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (FULL || u < live) {
            const acc_t a = from_spread(attention, u);
            for_each_element(
                [&](int k, int v) { state.sum[k][v] += a * element(gathered.rows[u][k], v); });
        }
    }
}

// Bring the slots together and write the row with its base-2 log-sum-exp, or the state of a piece of it.
__device__ inline void store_softmax(
    const Lane& me,
    const Unit& unit,
    SoftmaxState& state,
    scalar_t* __restrict__ out,        // (N_dst, H, D)
    acc_t* __restrict__ lse,           // (N_dst, H)
    acc_t* __restrict__ part_sum,      // (num_chunks, H, D), relative to the piece's maximum
    acc_t* __restrict__ part_state) {  // (num_chunks, H, 2), maximum and total
    state.total = sum_over_spread(state.total);
    merge_slots(me, state);
    if (unit.row < 0) {
        return;
    }
    const bool whole = unit.chunk < 0;
    const bool any = unit.begin < unit.end;
    if (whole) {
        const acc_t inverse = any ? 1 / state.total : NOTHING;
        for_each_element([&](int k, int v) { state.sum[k][v] *= inverse; });
        store_row(me, unit.row, state.sum, out);
    } else {
        store_piece(me, unit.chunk, state.sum, part_sum);
    }
    if (me.element == 0 && me.edge_slot == 0 && owns_head(me)) {
        if (whole) {
            lse[head_offset(unit.row, me)] = any ? state.top + log2(state.total) : NOTHING;
        } else {
            acc_t* at = part_state + head_offset(unit.chunk, me) * 2;
            at[0] = state.top;
            at[1] = state.total;
        }
    }
}
