// centered_sums.cuh: sums of p and of p x over the edges of a row, and element by element over the edges
// that a condition picks, such that a mean of x can be taken out of them without losing digits: x counts
// relative to a shift, first the x of the row's first edge, then the mean of what was seen.
// Prelude: those of rows.cuh
#pragma once

#include "rows.cuh"

struct CenteredSums {
    acc_t shift;
    acc_t total;         // sum of p over the edges that this lane keeps (spread_over_head)
    acc_t inner;         // sum of p (x - shift) over the same
    acc_t picked[K][V];  // sum of p over the picked edges of this slot
    acc_t inner_picked[K][V];
};

__device__ inline CenteredSums no_sums() {
    CenteredSums sums;
    sums.shift = NOTHING;
    sums.total = NOTHING;
    sums.inner = NOTHING;
    clear(sums.picked);
    clear(sums.inner_picked);
    return sums;
}

__device__ inline void move_shift(CenteredSums& sums, acc_t by) {
    sums.shift += by;
    sums.inner -= by * sums.total;
    for_each_element([&](int k, int v) { sums.inner_picked[k][v] -= by * sums.picked[k][v]; });
}

// To be called after every group, with how many a lane has taken: moves the shift to the mean after 4, 16,
// 64, ... of them. The earlier, the less there is to lose; the rarer, the cheaper.
__device__ inline void recenter(CenteredSums& sums, index_t groups) {
    if ((groups & (groups - 1)) == 0 && (groups & 0x55555554) != 0) {
        const acc_t total = sum_over_slots(sum_over_spread(sums.total));
        const acc_t inner = sum_over_slots(sum_over_spread(sums.inner));
        move_shift(sums, total > 0 ? inner / total : NOTHING);
    }
}
