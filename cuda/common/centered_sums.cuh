// centered_sums.cuh: sums of p and of p x over the edges of a row, and of both times numbers g of the
// edges, such that a mean of x can be taken out of them without losing digits: x counts relative to a
// shift, first the plain mean of the row's first group, then the mean of what was seen.
// With delta = sum p x / sum p, the gradient of a softmax needs
//   sum_e p (x - delta) g / sum p = (inner_picked - inner / total * picked) / total.
// Dividing by the sum of the very p that were added up makes the rounding of the log-sum-exp and of the
// scores cancel.
// Prelude: those of rows.cuh
#pragma once

#include "rows.cuh"

// ROWS x COLUMNS numbers g an edge in a lane.
template <int ROWS, int COLUMNS>
struct CenteredSums {
    acc_t shift;
    acc_t total;                  // sum of p over the edges that this lane keeps (spread_over_head)
    acc_t inner;                  // sum of p (x - shift) over the same
    acc_t picked[ROWS][COLUMNS];  // sum of p g
    acc_t inner_picked[ROWS][COLUMNS];
};

template <int ROWS, int COLUMNS, class Body>
__device__ inline void for_each_sum(const CenteredSums<ROWS, COLUMNS>&, Body body) {
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
#pragma unroll
        for (int v = 0; v < COLUMNS; ++v) {
            body(k, v);
        }
    }
}

template <int ROWS, int COLUMNS>
__device__ inline CenteredSums<ROWS, COLUMNS> no_sums() {
    CenteredSums<ROWS, COLUMNS> sums;
    sums.shift = NOTHING;
    sums.total = NOTHING;
    sums.inner = NOTHING;
    for_each_sum(sums, [&](int k, int v) {
        sums.picked[k][v] = NOTHING;
        sums.inner_picked[k][v] = NOTHING;
    });
    return sums;
}

template <int ROWS, int COLUMNS>
__device__ inline void move_shift(CenteredSums<ROWS, COLUMNS>& sums, acc_t by) {
    sums.shift += by;
    sums.inner -= by * sums.total;
    for_each_sum(sums, [&](int k, int v) { sums.inner_picked[k][v] -= by * sums.picked[k][v]; });
}

// The shift to start with. Edges that do not exist have to have x = 0; that of a single edge is its x,
// exactly, so that delta is too.
__device__ inline acc_t first_shift(const Unit& unit, const acc_t (&x)[U]) {
    acc_t sum = NOTHING;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        sum += x[j];
    }
    sum = sum_over_slots(sum_over_spread(sum));
    const index_t length = unit.end - unit.begin;
    const index_t count = length < GROUP ? length : GROUP;
    return count > 1 ? sum / static_cast<acc_t>(count) : sum;
}

// To be called after every group, with how many a lane has taken: moves the shift to the mean after 4, 16,
// 64, ... of them. The earlier, the less there is to lose; the rarer, the cheaper.
template <int ROWS, int COLUMNS>
__device__ inline void recenter(CenteredSums<ROWS, COLUMNS>& sums, index_t groups) {
    if ((groups & (groups - 1)) == 0 && (groups & 0x55555554) != 0) {
        const acc_t total = sum_over_slots(sum_over_spread(sums.total));
        const acc_t inner = sum_over_slots(sum_over_spread(sums.inner));
        move_shift(sums, total > 0 ? inner / total : NOTHING);
    }
}

// Totals of a row or piece, over all lanes, in every lane.
struct RowTotals {
    acc_t total;
    acc_t inner;  // relative to the shift
};

template <int ROWS, int COLUMNS>
__device__ inline RowTotals totals_of(const CenteredSums<ROWS, COLUMNS>& sums) {
    return RowTotals{
        sum_over_slots(sum_over_spread(sums.total)), sum_over_slots(sum_over_spread(sums.inner))};
}

__device__ inline bool writes_head(const Lane& me) {
    return me.element == 0 && me.edge_slot == 0 && owns_head(me);
}

// What the pass by source needs of a row: 1 / sum of p, and delta. In a row of one edge x is delta, but
// that pass may add the products of x up in another order: the sign of the first number tells it so.
__device__ inline void store_row_state(
    const Lane& me,
    const Unit& unit,
    const RowTotals& totals,
    acc_t shift,
    acc_t* __restrict__ row_state) {  // (N_dst, H, 2)
    if (unit.row >= 0 && unit.begin < unit.end && writes_head(me)) {
        acc_t* at = row_state + head_offset(unit.row, me) * 2;
        at[0] = (unit.end - unit.begin == 1 ? -1 : 1) / totals.total;
        at[1] = shift + totals.inner / totals.total;
    }
}

// The same of a piece of a row; its sums must not be relative to a shift, on which pieces do not agree.
__device__ inline void store_piece_totals(
    const Lane& me,
    const Unit& unit,
    const RowTotals& totals,
    acc_t shift,
    acc_t* __restrict__ part_totals) {  // (num_chunks, H, 2): sums of p x and of p
    if (unit.chunk >= 0 && writes_head(me)) {
        acc_t* at = part_totals + head_offset(unit.chunk, me) * 2;
        at[0] = totals.inner + shift * totals.total;
        at[1] = totals.total;
    }
}
