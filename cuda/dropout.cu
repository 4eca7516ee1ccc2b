// dropout.cu: the mask of attention dropout, for those who need to see what the kernels apply.
//   mask[e,h] = 0 where (seed, e, h) is dropped, else keep_scale
// One thread owns one number.
// Prelude: scalar_t, acc_t, index_t, H
#include "common/dropout.cuh"

extern "C" __global__ void dropout_mask(
    const int64_t* __restrict__ seed,  // (1)
    const int64_t drop_below,
    const acc_t keep_scale,
    const int64_t size,  // E * H
    // outputs
    scalar_t* __restrict__ mask) {  // (E, H), edge-id order
    const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < size) {
        const Dropout dropout = make_dropout(seed, drop_below, keep_scale);
        const bool kept = keeps(dropout, at / H, static_cast<int>(at % H));
        from_acc(kept ? dropout.scale : static_cast<acc_t>(0), mask[at]);
    }
}
