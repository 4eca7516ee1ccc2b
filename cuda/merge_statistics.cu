// merge_statistics.cu: put what extremum.cu and statistics.cu found in the pieces of long rows together.
//   merge_largest, merge_smallest: the best of best[j,c] over the pieces j of a row, and the first place that has
//     it (contest.cuh)
//   merge_moments: mean, sum and spread from those of the pieces (moments.cuh)
// A block owns 32 columns of one long row, as in merge.cu, and the order is fixed.
// Prelude: scalar_t, acc_t, index_t, H, D
#include "common/contest.cuh"
#include "common/moments.cuh"
#include "common/pieces.cuh"

template <bool MOST>
__device__ inline void merge_winners(
    const acc_t* __restrict__ part_best,
    const uint32_t* __restrict__ part_place,
    const index_t* __restrict__ long_rows,
    const index_t* __restrict__ chunk_ptr,
    int64_t num_rows,
    int64_t num_planes,
    scalar_t* __restrict__ out,
    uint8_t* __restrict__ winners) {
    __shared__ acc_t bests[MERGE_WARPS][32];
    __shared__ uint32_t places[MERGE_WARPS][32];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int column = blockIdx.y * 32 + lane;
    const int64_t last = chunk_ptr[blockIdx.x + 1];
    acc_t best = weakest<MOST>();
    uint32_t place = NOBODY;
    if (column < H * D) {
#pragma unroll 4
        for (int64_t j = chunk_ptr[blockIdx.x] + warp; j < last; j += MERGE_WARPS) {
            const int64_t at = j * (H * D) + column;
            absorb<MOST>(best, place, part_best[at], num_planes > 0 ? part_place[at] : NOBODY);
        }
    }
    bests[warp][lane] = best;
    places[warp][lane] = place;
    __syncthreads();
    if (warp == 0 && column < H * D) {
        for (int w = 1; w < MERGE_WARPS; ++w) {
            absorb<MOST>(best, place, bests[w][lane], places[w][lane]);
        }
        const bool lost = is_infinite(best);
        const int64_t at = static_cast<int64_t>(long_rows[blockIdx.x]) * (H * D) + column;
        from_acc(lost ? static_cast<acc_t>(0) : best, out[at]);
        place = lost ? NOBODY : place;
        for (int byte = 0; byte < num_planes; ++byte) {
            winners[byte * num_rows * (H * D) + at] = static_cast<uint8_t>(place >> 8 * byte);
        }
    }
}

extern "C" __global__ void __launch_bounds__(MERGE_WARPS * 32) merge_largest(
    const acc_t* __restrict__ part_best,      // (num_chunks, H, D)
    const uint32_t* __restrict__ part_place,  // (num_chunks, H, D)
    const int64_t num_rows,
    const int64_t num_planes,               // bytes of a place, 0 if they are not wanted
    const index_t* __restrict__ long_rows,  // (num_long)
    const index_t* __restrict__ chunk_ptr,  // (num_long + 1)
    // outputs
    scalar_t* __restrict__ out,       // (num_rows, H, D)
    uint8_t* __restrict__ winners) {  // (num_planes, num_rows, H, D)
    merge_winners<true>(
        part_best, part_place, long_rows, chunk_ptr, num_rows, num_planes, out, winners);
}

extern "C" __global__ void __launch_bounds__(MERGE_WARPS * 32) merge_smallest(
    const acc_t* __restrict__ part_best,      // (num_chunks, H, D)
    const uint32_t* __restrict__ part_place,  // (num_chunks, H, D)
    const int64_t num_rows,
    const int64_t num_planes,               // bytes of a place, 0 if they are not wanted
    const index_t* __restrict__ long_rows,  // (num_long)
    const index_t* __restrict__ chunk_ptr,  // (num_long + 1)
    // outputs
    scalar_t* __restrict__ out,       // (num_rows, H, D)
    uint8_t* __restrict__ winners) {  // (num_planes, num_rows, H, D)
    merge_winners<false>(
        part_best, part_place, long_rows, chunk_ptr, num_rows, num_planes, out, winners);
}

extern "C" __global__ void __launch_bounds__(MERGE_WARPS * 32) merge_moments(
    const index_t* __restrict__ indptr,        // (num_rows + 1)
    const index_t* __restrict__ chunk_begins,  // (num_chunks), first position of each piece
    const acc_t* __restrict__ part_total,      // (num_chunks, H, D)
    const acc_t* __restrict__ part_mean,       // (num_chunks, H, D), or null without spread
    const acc_t* __restrict__ part_squares,    // (num_chunks, H, D), likewise
    const int64_t root,
    const index_t* __restrict__ long_rows,  // (num_long)
    const index_t* __restrict__ chunk_ptr,  // (num_long + 1)
    // outputs
    scalar_t* __restrict__ mean,         // (num_rows, H, D)
    scalar_t* __restrict__ total,        // (num_rows, H, D) or null
    scalar_t* __restrict__ spread,       // (num_rows, H, D) or null
    acc_t* __restrict__ exact_mean,      // (num_rows, H, D) or null
    acc_t* __restrict__ exact_spread) {  // (num_rows, H, D) or null
    __shared__ acc_t totals[MERGE_WARPS][32];
    __shared__ Sums sums[MERGE_WARPS][32];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int column = blockIdx.y * 32 + lane;
    const int64_t row = long_rows[blockIdx.x];
    const int64_t row_end = indptr[row + 1];
    const int64_t first = chunk_ptr[blockIdx.x];
    const int64_t last = chunk_ptr[blockIdx.x + 1];
    acc_t sum = 0;
    acc_t centre = 0;
    Sums found{};
    if (column < H * D) {
        // All pieces about the mean of the first one.
        centre = spread == nullptr ? 0 : part_mean[first * (H * D) + column];
#pragma unroll 4
        for (int64_t j = first + warp; j < last; j += MERGE_WARPS) {
            const int64_t at = j * (H * D) + column;
            sum += part_total[at];
            if (spread != nullptr) {
                const int64_t end = j + 1 < last ? chunk_begins[j + 1] : row_end;
                const acc_t n = static_cast<acc_t>(end - chunk_begins[j]);
                const Sums more = about(Moments{part_mean[at], part_squares[at]}, n, centre);
                found.sum += more.sum;
                found.squares += more.squares;
            }
        }
    }
    totals[warp][lane] = sum;
    sums[warp][lane] = found;
    __syncthreads();
    if (warp > 0 || column >= H * D) {
        return;
    }
    for (int w = 1; w < MERGE_WARPS; ++w) {
        sum += totals[w][lane];
        found.sum += sums[w][lane].sum;
        found.squares += sums[w][lane].squares;
    }
    const int64_t at = row * (H * D) + column;
    const acc_t n = static_cast<acc_t>(row_end - indptr[row]);
    const acc_t width = spread_of(moments_of(found, n, centre), n, root != 0);
    from_acc(sum / n, mean[at]);
    if (total != nullptr) {
        from_acc(sum, total[at]);
    }
    if (spread != nullptr) {
        from_acc(width, spread[at]);
    }
    if (exact_mean != nullptr) {
        exact_mean[at] = sum / n;
        exact_spread[at] = width;
    }
}
