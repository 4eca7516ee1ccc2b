// block_sum.cuh: a gradient that all rows add to, such as that of an attention vector, without atomics.
// Every lane keeps its share in registers, every block writes one row of sums, and merge_shares adds the
// rows up: bitwise repeatable.
// Prelude: those of lanes.cuh, WARPS
#pragma once

#include "lanes.cuh"

// Sum the lanes' shares of an (H, D) gradient over the block in a fixed order; write the block's row.
__device__ inline void store_block_sum(
    const Lane& me,
    const acc_t (&share)[K][V],
    acc_t* __restrict__ part) {  // (gridDim.x, H, D)
    __shared__ acc_t shares[WARPS][32][K * V];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    for_each_element([&](int k, int v) { shares[warp][lane][k * V + v] = share[k][v]; });
    __syncthreads();
    // Lanes that are ROW_LANES apart own the same elements.
    for (int i = threadIdx.x; i < ROW_LANES * K * V; i += WARPS * 32) {
        const int owner = i / (K * V);
        const int entry = i % (K * V);
        acc_t total = NOTHING;
        for (int w = 0; w < WARPS; ++w) {
            for (int copy = owner; copy < 32; copy += ROW_LANES) {
                total += shares[w][copy][entry];
            }
        }
        const int head = static_cast<int>(blockIdx.y) * HPW + owner / P;
        const int d = (entry / V * P + owner % P) * V + entry % V;
        if (head < H && d < D) {
            part[static_cast<int64_t>(blockIdx.x) * (H * D) + head * D + d] = total;
        }
    }
}
