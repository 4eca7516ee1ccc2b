// contest.cuh: which of two values of a row wins.
//
// The first edge of a row wins a tie, and no comparison with NaN holds, so that NaN never wins; nor does
// the infinity that every number beats.
// Prelude: scalar_t, acc_t
#pragma once

#include "scalar.cuh"

constexpr uint32_t NOBODY = 0xffffffffu;

// MOST: the largest wins, else the smallest.
template <bool MOST>
__device__ inline bool beats(acc_t a, acc_t b) {
    return MOST ? a > b : a < b;
}

// The value that every number beats.
template <bool MOST>
__device__ inline acc_t weakest() {
    return MOST ? minus_infinity() : -minus_infinity();
}

__device__ inline bool is_infinite(acc_t x) {
    return x == minus_infinity() || x == -minus_infinity();
}

// Take over what another part of the row has found.
template <bool MOST>
__device__ inline void absorb(acc_t& best, uint32_t& place, acc_t other, uint32_t other_place) {
    const bool wins = beats<MOST>(other, best) || (other == best && other_place < place);
    best = wins ? other : best;
    place = wins ? other_place : place;
}
