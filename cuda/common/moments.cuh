// moments.cuh: the spread of a row from sums of x - first and of its square, first being that of its first edge.
//
// Rows far from 0 lose no digits of their spread that way, and rows of equal values have none.
// Prelude: scalar_t, acc_t
#pragma once

#include "scalar.cuh"

// The variance of n values, or its root.
__device__ inline acc_t spread_of(acc_t sum, acc_t squares, acc_t n, bool root) {
    const acc_t shift = sum / n;
    const acc_t variance = squares / n - shift * shift;
    const acc_t kept = variance < 0 ? static_cast<acc_t>(0) : variance;
    return root ? sqrt(kept) : kept;
}
