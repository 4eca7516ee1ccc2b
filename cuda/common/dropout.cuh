// dropout.cuh: which attention values dropout keeps: a function of seed, edge id and head, and of nothing
// else. Every pass finds the same mask, in whatever order it walks the edges, and no mask is stored.
//
// The generator is Philox 2x32 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3,
// SC 2011) with the 7 rounds that its authors found enough for their statistical tests.
// Prelude: scalar_t, acc_t
#pragma once

#include "scalar.cuh"

constexpr int PHILOX_ROUNDS = 7;
constexpr uint32_t PHILOX_MULTIPLIER = 0xd256d193u;
constexpr uint32_t PHILOX_KEY_STEP = 0x9e3779b9u;

struct Dropout {
    uint32_t key;    // lower half of the seed
    uint32_t salt;   // upper half
    uint32_t below;  // random words below are dropped
    acc_t scale;     // of those that are kept
};

__device__ inline Dropout make_dropout(
    const int64_t* __restrict__ seed,
    int64_t below,
    acc_t scale) {
    const int64_t drawn = *seed;
    return Dropout{
        static_cast<uint32_t>(drawn), static_cast<uint32_t>(drawn >> 32),
        static_cast<uint32_t>(below), scale};
}

// Whether the attention of an edge and head is kept.
__device__ inline bool keeps(const Dropout& dropout, int64_t edge, int head) {
    uint32_t left = static_cast<uint32_t>(edge);
    uint32_t right = (static_cast<uint32_t>(edge >> 32) * 4096u + head) ^ dropout.salt;
    uint32_t key = dropout.key;
#pragma unroll
    for (int round = 0; round < PHILOX_ROUNDS; ++round) {
        const uint32_t high = __umulhi(PHILOX_MULTIPLIER, left);
        const uint32_t low = PHILOX_MULTIPLIER * left;
        left = high ^ key ^ right;
        right = low;
        key += PHILOX_KEY_STEP;
    }
    return left >= dropout.below;
}
