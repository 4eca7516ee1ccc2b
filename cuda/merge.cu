// merge.cu: put the pieces of long rows, or the blocks' shares of a sum, together in a fixed order.
//   merge_sum:     out[row,c] = sum_j part[j,c]
//   merge_totals:  row_state[row,h] = (max_j top_j, 1 / sum_j w_j total_j),  w_j = e^(top_j - max_j top_j)
//   merge_centered:  the sums of gat_backward_dst or dot_attention_backward_dst (centered_sums.cuh), and
//     the end of a row that follows from them
//   merge_gatv2_dst: the same for gatv2_backward_dst
//   merge_softmax: out[row,c] = sum_j w_j part[j,c] / sum_j w_j total_j,  w_j = 2^(top_j - max_j top_j)
// over the pieces j of the row. A block owns 32 columns of one long row; warp w takes pieces w, w + 8,
// ... and the eight results meet in shared memory.
//   merge_shares:  out[c] = sum_j part[j,c] over the shares of all blocks that block_sum.cuh wrote
// Here a block owns 8 columns, which is what one memory sector holds of a share.
// Prelude: scalar_t, acc_t, index_t, H, D
#include "common/pieces.cuh"

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

constexpr acc_t BASE_2 = 1;

// `scale` turns tops into powers of 2.
__device__ inline void absorb(Softmax& state, const Softmax& other, acc_t scale) {
    const acc_t top = largest(state.top, other.top);
    const acc_t base = top == minus_infinity() ? static_cast<acc_t>(0) : top;
    const acc_t mine = fast_exp2(scale * (state.top - base));
    const acc_t theirs = fast_exp2(scale * (other.top - base));
    state.top = top;
    state.total = state.total * mine + other.total * theirs;
    state.sum = state.sum * mine + other.sum * theirs;
}

extern "C" __global__ void __launch_bounds__(MERGE_WARPS * 32) merge_softmax(
    const acc_t* __restrict__ part_sum,     // (num_chunks, H, D)
    const acc_t* __restrict__ part_state,   // (num_chunks, H, 2): top and total of each piece
    const index_t* __restrict__ long_rows,  // (num_long)
    const index_t* __restrict__ chunk_ptr,  // (num_long + 1)
    // outputs
    scalar_t* __restrict__ out,  // (num_rows, H, D)
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
            absorb(state, Softmax{from[0], from[1], part_sum[j * (H * D) + column]}, BASE_2);
        }
    }
    states[warp][lane] = state;
    __syncthreads();
    if (warp == 0 && column < H * D) {
        for (int w = 1; w < MERGE_WARPS; ++w) {
            absorb(state, states[w][lane], BASE_2);
        }
        const int64_t row = long_rows[blockIdx.x];
        from_acc(state.sum / state.total, out[row * (H * D) + column]);
        if (column % D == 0) {
            lse[row * H + column / D] = state.top + log2(state.total);
        }
    }
}

extern "C" __global__ void __launch_bounds__(MERGE_WARPS * 32) merge_totals(
    const acc_t* __restrict__ part_state,   // (num_chunks, H, 2): top and total of each piece
    const index_t* __restrict__ long_rows,  // (num_long)
    const index_t* __restrict__ chunk_ptr,  // (num_long + 1)
    // outputs
    acc_t* __restrict__ row_state) {  // (num_rows, H, 2)
    __shared__ Softmax states[MERGE_WARPS][32];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int head = blockIdx.y * 32 + lane;
    const int64_t last = chunk_ptr[blockIdx.x + 1];
    Softmax state{minus_infinity(), 0, 0};
    if (head < H) {
        for (int64_t j = chunk_ptr[blockIdx.x] + warp; j < last; j += MERGE_WARPS) {
            const acc_t* from = part_state + (j * H + head) * 2;
            absorb(state, Softmax{from[0], from[1], 0}, LOG2E);
        }
    }
    states[warp][lane] = state;
    __syncthreads();
    if (warp == 0 && head < H) {
        for (int w = 1; w < MERGE_WARPS; ++w) {
            absorb(state, states[w][lane], LOG2E);
        }
        acc_t* at = row_state + (long_rows[blockIdx.x] * static_cast<int64_t>(H) + head) * 2;
        at[0] = state.top;
        at[1] = 1 / state.total;
    }
}

// The sums of a row that lie in a column, over all its pieces; complete in the first warp.
struct RowSums {
    acc_t inner_picked;  // sums of p x g and of p g
    acc_t picked;
    acc_t inner;  // of p x and of p
    acc_t total;

    __device__ acc_t delta() const {
        return inner / total;
    }

    __device__ acc_t centered() const {
        return (inner_picked - delta() * picked) / total;
    }
};

__device__ inline RowSums sum_pieces(
    const acc_t* __restrict__ part_sums,    // (num_chunks, 2, H, D)
    const acc_t* __restrict__ part_totals,  // (num_chunks, H, 2)
    const index_t* __restrict__ chunk_ptr,  // (num_long + 1)
    int column) {
    __shared__ RowSums shares[MERGE_WARPS][32];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int64_t last = chunk_ptr[blockIdx.x + 1];
    RowSums sums{};
    if (column < H * D) {
#pragma unroll 4
        for (int64_t j = chunk_ptr[blockIdx.x] + warp; j < last; j += MERGE_WARPS) {
            const acc_t* totals = part_totals + (j * H + column / D) * 2;
            sums.inner_picked += part_sums[j * 2 * (H * D) + column];
            sums.picked += part_sums[(j * 2 + 1) * (H * D) + column];
            sums.inner += totals[0];
            sums.total += totals[1];
        }
    }
    shares[warp][lane] = sums;
    __syncthreads();
    if (warp == 0) {
        for (int w = 1; w < MERGE_WARPS; ++w) {
            const RowSums& more = shares[w][lane];
            sums.inner_picked += more.inner_picked;
            sums.picked += more.picked;
            sums.inner += more.inner;
            sums.total += more.total;
        }
    }
    return sums;
}

__device__ inline void store_state(
    const RowSums& sums,
    int64_t row,
    int column,
    acc_t* __restrict__ row_state) {
    if (column % D == 0) {
        acc_t* at = row_state + (row * H + column / D) * 2;
        at[0] = 1 / sums.total;
        at[1] = sums.delta();
    }
}

extern "C" __global__ void __launch_bounds__(MERGE_WARPS * 32) merge_centered(
    const acc_t factor,
    const acc_t* __restrict__ part_sums,    // (num_chunks, 2, H, D)
    const acc_t* __restrict__ part_totals,  // (num_chunks, H, 2)
    const index_t* __restrict__ long_rows,  // (num_long)
    const index_t* __restrict__ chunk_ptr,  // (num_long + 1)
    // outputs
    scalar_t* __restrict__ grad,      // (num_rows, H, D)
    acc_t* __restrict__ row_state) {  // (num_rows, H, 2)
    const int column = blockIdx.y * 32 + threadIdx.x % 32;
    const RowSums sums = sum_pieces(part_sums, part_totals, chunk_ptr, column);
    if (threadIdx.x >= 32 || column >= H * D) {
        return;
    }
    const int64_t row = long_rows[blockIdx.x];
    from_acc(factor * sums.centered(), grad[row * (H * D) + column]);
    store_state(sums, row, column, row_state);
}

extern "C" __global__ void __launch_bounds__(MERGE_WARPS * 32) merge_gatv2_dst(
    const scalar_t* __restrict__ feat_dst,  // (N_dst, H, D)
    const scalar_t* __restrict__ attn,      // (H, D)
    const acc_t negative_slope,
    const acc_t* __restrict__ part_sums,    // (num_chunks, 2, H, D)
    const acc_t* __restrict__ part_totals,  // (num_chunks, H, 2)
    const index_t* __restrict__ long_rows,  // (num_long)
    const index_t* __restrict__ chunk_ptr,  // (num_long + 1)
    // outputs
    scalar_t* __restrict__ grad_dst,  // (N_dst, H, D)
    acc_t* __restrict__ row_state,    // (N_dst, H, 2)
    acc_t* __restrict__ part_attn) {  // (num_long, H, D)
    const int column = blockIdx.y * 32 + threadIdx.x % 32;
    const RowSums sums = sum_pieces(part_sums, part_totals, chunk_ptr, column);
    if (threadIdx.x >= 32 || column >= H * D) {
        return;
    }
    const int64_t row = long_rows[blockIdx.x];
    const acc_t t = (1 - negative_slope) * sums.centered();
    from_acc(to_acc(attn[column]) * t, grad_dst[row * (H * D) + column]);
    part_attn[static_cast<int64_t>(blockIdx.x) * (H * D) + column] =
        to_acc(feat_dst[row * (H * D) + column]) * t;
    store_state(sums, row, column, row_state);
}

constexpr int SHARE_COLUMNS = 8;
constexpr int SHARE_ROWS = 128;

extern "C" __global__ void __launch_bounds__(SHARE_COLUMNS* SHARE_ROWS) merge_shares(
    const acc_t* part,  // (num_shares, H, D)
    const int64_t num_shares,
    // outputs
    scalar_t* out) {  // (H, D); may be one of the shares, which a block reads before it writes
    __shared__ acc_t sums[SHARE_ROWS][SHARE_COLUMNS];
    const int row = threadIdx.x / SHARE_COLUMNS;
    const int place = threadIdx.x % SHARE_COLUMNS;
    const int column = blockIdx.x * SHARE_COLUMNS + place;
    acc_t sum = 0;
    if (column < H * D) {
#pragma unroll 8
        for (int64_t j = row; j < num_shares; j += SHARE_ROWS) {
            sum += part[j * (H * D) + column];
        }
    }
    sums[row][place] = sum;
#pragma unroll
    for (int step = SHARE_ROWS / 2; step > 0; step /= 2) {
        __syncthreads();
        if (row < step) {
            sums[row][place] += sums[row + step][place];
        }
    }
    if (row == 0 && column < H * D) {
        from_acc(sums[0][place], out[column]);
    }
}
