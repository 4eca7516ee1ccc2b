// merge.cu: put the pieces of long rows together, in a fixed order.
//   merge_sum:     out[row,c] = sum_j part[j,c]
//   merge_softmax: out[row,c] = sum_j w_j part[j,c] / sum_j w_j total_j,  w_j = 2^(top_j - max_j top_j)
// over the pieces j of the row. A block owns 32 columns of one long row; warp w takes pieces w, w + 8, ...
// and the eight results meet in shared memory.
// Prelude: scalar_t, acc_t, index_t, H, D
#include "common/scalar.cuh"

constexpr int MERGE_WARPS = 8;

extern "C" __global__ void __launch_bounds__(MERGE_WARPS * 32) merge_sum(
    const acc_t* __restrict__ part,         // (num_chunks, H, D)
    const index_t* __restrict__ long_rows,  // (num_long)
    const index_t* __restrict__ chunk_ptr,  // (num_long + 1)
    // outputs
    scalar_t* __restrict__ out) {  // (num_rows, H, D)
    __shared__ acc_t sums[MERGE_WARPS][32];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int column = blockIdx.y * 32 + lane;
    const int64_t last = chunk_ptr[blockIdx.x + 1];
    acc_t sum = 0;
    if (column < H * D) {
#pragma unroll 4
        for (int64_t j = chunk_ptr[blockIdx.x] + warp; j < last; j += MERGE_WARPS) {
            sum += part[j * (H * D) + column];
        }
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < H * D) {
        for (int w = 1; w < MERGE_WARPS; ++w) {
            sum += sums[w][lane];
        }
        from_acc(sum, out[static_cast<int64_t>(long_rows[blockIdx.x]) * (H * D) + column]);
    }
}

struct Softmax {
    acc_t top;
    acc_t total;
    acc_t sum;
};

__device__ inline void absorb(Softmax& state, const Softmax& other) {
    const acc_t top = largest(state.top, other.top);
    const acc_t base = top == minus_infinity() ? static_cast<acc_t>(0) : top;
    const acc_t mine = fast_exp2(state.top - base);
    const acc_t theirs = fast_exp2(other.top - base);
    state.top = top;
    state.total = state.total * mine + other.total * theirs;
    state.sum = state.sum * mine + other.sum * theirs;
}

extern "C" __global__ void __launch_bounds__(MERGE_WARPS * 32) merge_softmax(
    const acc_t* __restrict__ part_sum,     // (num_chunks, H, D), or null: only lse is wanted
    const acc_t* __restrict__ part_state,   // (num_chunks, H, 2): top and total of each piece
    const index_t* __restrict__ long_rows,  // (num_long)
    const index_t* __restrict__ chunk_ptr,  // (num_long + 1)
    // outputs
    scalar_t* __restrict__ out,  // (num_rows, H, D), or null
    acc_t* __restrict__ lse) {   // (num_rows, H), base 2
    __shared__ Softmax states[MERGE_WARPS][32];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int column = blockIdx.y * 32 + lane;
    const int64_t last = chunk_ptr[blockIdx.x + 1];
    Softmax state{minus_infinity(), 0, 0};
    if (column < H * D) {
        for (int64_t j = chunk_ptr[blockIdx.x] + warp; j < last; j += MERGE_WARPS) {
            const acc_t* from = part_state + (j * H + column / D) * 2;
            absorb(state, Softmax{from[0], from[1], part_sum ? part_sum[j * (H * D) + column] : 0});
        }
    }
    states[warp][lane] = state;
    __syncthreads();
    if (warp == 0 && column < H * D) {
        for (int w = 1; w < MERGE_WARPS; ++w) {
            absorb(state, states[w][lane]);
        }
        const int64_t row = long_rows[blockIdx.x];
        if (out) {
            from_acc(state.sum / state.total, out[row * (H * D) + column]);
        }
        if (column % D == 0) {
            lse[row * H + column / D] = state.top + log2(state.total);
        }
    }
}
