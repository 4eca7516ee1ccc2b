// moments.cuh: mean and spread of values as they come (Welford, Technometrics 4, 1962; several at a time: Chan,
// Golub and LeVeque, The American Statistician 37, 1983).
//
// No digits are lost where values are far from 0 or the first of them is far from the mean, and equal values
// have no spread at all.
// Prelude: scalar_t, acc_t
#pragma once

#include "scalar.cuh"

// Of the values so far.
struct Moments {
    acc_t mean;
    acc_t squares;  // sum of (x - mean)^2
};

// What the next values change, the same for all numbers of a row.
struct Step {
    acc_t share;   // of the new values in all
    acc_t weight;  // of the square of what lies between the means
};

__device__ inline Step step_of(acc_t before, acc_t count) {
    const acc_t share = before == 0 ? static_cast<acc_t>(1) : count * reciprocal(before + count);
    return Step{share, before * share};
}

__device__ constexpr Step NO_STEP = Step{0, 0};

// The sum of N values, a power of 2, in pairs: that of equal ones is exact.
template <int N, int FROM = 0, int COUNT = N>
__device__ inline acc_t sum_pairs(const acc_t (&x)[N]) {
    if constexpr (COUNT == 1) {
        return x[FROM];
    } else {
        return sum_pairs<N, FROM, COUNT / 2>(x) + sum_pairs<N, FROM + COUNT / 2, COUNT / 2>(x);
    }
}

// Take N values in and return their sum.
template <int N>
__device__ inline acc_t add_values(Moments& held, const acc_t (&x)[N], const Step& step) {
    const acc_t sum = sum_pairs(x);
    const acc_t centre = sum * (static_cast<acc_t>(1) / N);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const acc_t away = x[i] - centre;
        held.squares += away * away;
    }
    const acc_t away = centre - held.mean;
    held.mean += away * step.share;
    held.squares += away * away * step.weight;
    return sum;
}

// Sums of n values about a centre near them: of x - centre and of its square.
struct Sums {
    acc_t sum;
    acc_t squares;
};

// What n values with these moments add to sums about `centre`.
__device__ inline Sums about(const Moments& held, acc_t n, acc_t centre) {
    const acc_t away = held.mean - centre;
    return Sums{n * away, held.squares + n * away * away};
}

__device__ inline Moments moments_of(const Sums& sums, acc_t n, acc_t centre) {
    const acc_t away = sums.sum / n;
    const acc_t squares = sums.squares - sums.sum * away;
    return Moments{centre + away, squares < 0 ? static_cast<acc_t>(0) : squares};
}

// The variance of n values, or its root.
__device__ inline acc_t spread_of(const Moments& held, acc_t n, bool root) {
    const acc_t variance = held.squares / n;
    return root ? sqrt(variance) : variance;
}
