// dots.cuh: dot products of the rows of a group, each with a row that its slot keeps.
//
// Rows of 16-bit numbers go to the tensor cores: products of two such numbers are exact there and are
// added up in 32 bits, as elsewhere. To mma.m16n8k16 a warp is 8 quads of lanes, and a quad holds two rows
// of the first factor and one column of the second. So lanes that share a head pass what they have loaded,
// in the order in which it lies: two edges as rows, the kept row as column. Entry (quad, quad) of the
// result is what the quad was after; the others are products with rows that other quads keep.
// Prelude: those of rows.cuh
#pragma once

#include "rows.cuh"

constexpr int QUAD = 4;
#if __CUDA_ARCH__ >= 800
constexpr bool ON_TENSOR_CORES = in_pairs<scalar_t> && V % 4 == 0 && P % QUAD == 0 && U % 2 == 0;
#else
constexpr bool ON_TENSOR_CORES = false;
#endif

// A row that a slot keeps: for the tensor cores as it came, else as numbers. (What is not used takes no
// registers.)
struct KeptRow {
    packet_t packets[K];
    acc_t values[K][V];

    __device__ acc_t at(int k, int v) const {
        return ON_TENSOR_CORES ? element(packets[k], v) : values[k][v];
    }
};

__device__ inline KeptRow keep_row(
    const scalar_t* __restrict__ array,
    int64_t row,
    const Lane& me,
    bool live) {
    KeptRow kept;
    load_row(array, row, me, live, kept.packets);
    for_each_element([&](int k, int v) { kept.values[k][v] = element(kept.packets[k], v); });
    return kept;
}

// The row times -1.
__device__ inline KeptRow keep_negated(
    const scalar_t* __restrict__ array,
    int64_t row,
    const Lane& me,
    bool live) {
    KeptRow kept = keep_row(array, row, me, live);
    for_each_element([&](int k, int v) { kept.values[k][v] = -kept.values[k][v]; });
    if constexpr (ON_TENSOR_CORES) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            kept.packets[k] = by_pairs(
                kept.packets[k], kept.packets[k],
                [](uint32_t pair, uint32_t) { return pair ^ 0x80008000u; });
        }
    }
    return kept;
}

// This lane's part of a product of 16 edges (two a quad) and 8 columns.
struct Products {
    float
        first[2];  // of the quad's first edge with columns 2 q and 2 q + 1, q the lane of the quad
    float second[2];  // of its second edge
};

// Add the products of the k-th vectors.
__device__ inline void multiply_add(
    Products& sums,
    const packet_t& first,
    const packet_t& second,
    const packet_t& column) {
#if __CUDA_ARCH__ >= 800
    const uint32_t* a = reinterpret_cast<const uint32_t*>(&first);
    const uint32_t* b = reinterpret_cast<const uint32_t*>(&second);
    const uint32_t* c = reinterpret_cast<const uint32_t*>(&column);
#pragma unroll
    for (int i = 0; i < V / 2; i += 2) {
        if constexpr (is_bfloat16<scalar_t>) {
            asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(sums.first[0]), "+f"(sums.first[1]), "+f"(sums.second[0]),
                  "+f"(sums.second[1])
                : "r"(a[i]), "r"(b[i]), "r"(a[i + 1]), "r"(b[i + 1]), "r"(c[i]), "r"(c[i + 1]));
        } else {
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(sums.first[0]), "+f"(sums.first[1]), "+f"(sums.second[0]),
                  "+f"(sums.second[1])
                : "r"(a[i]), "r"(b[i]), "r"(a[i + 1]), "r"(b[i + 1]), "r"(c[i]), "r"(c[i + 1]));
        }
    }
#endif
}

// From two columns of a quad's edge to its own product, in all lanes of the quad. Where at most two
// quads keep different rows, every lane has it; SHARED says that all rows of the warp keep the same.
template <bool SHARED>
__device__ inline acc_t own_product(const float (&columns)[2]) {
    constexpr int different = SHARED || R == 1 ? ROW_LANES / QUAD : 32 / QUAD;
    const int quad = threadIdx.x % 32 / QUAD;
    const float product = different > 1 && quad % 2 == 1 ? columns[1] : columns[0];
    return different > 2 ? __shfl_sync(FULL_WARP, product, quad / 2, QUAD) : product;
}

__device__ inline acc_t sum_over_quad(acc_t x) {
#pragma unroll
    for (int step = 1; step < QUAD; step *= 2) {
        x += __shfl_xor_sync(FULL_WARP, x, step);
    }
    return x;
}

// body(p) for every two edges 2 p and 2 p + 1 of which one exists in some slot.
template <bool FULL, class Body>
__device__ inline void for_each_edge_pair(int live, Body body) {
#pragma unroll
    for (int p = 0; p < U / 2; ++p) {
        if (FULL || 2 * p < live) {
            body(p);
        }
    }
}

// A lane's shares of the U dot products, for spread_shares: on the tensor cores a quad has its share in all
// its lanes.
template <bool FULL>
__device__ inline void share_dots(
    const KeptRow& kept,
    const Gathered& gathered,
    int live,
    acc_t (&dots)[U]) {
    fill(dots, NOTHING);
    if constexpr (ON_TENSOR_CORES) {
        for_each_edge_pair<FULL>(live, [&](int p) {
            Products sums = {};
#pragma unroll
            for (int k = 0; k < K; ++k) {
                multiply_add(
                    sums, gathered.rows[2 * p][k], gathered.rows[2 * p + 1][k], kept.packets[k]);
            }
            dots[2 * p] = own_product<false>(sums.first);
            dots[2 * p + 1] = own_product<false>(sums.second);
        });
    } else {
        for_each_edge_element<FULL>(live, [&](int u, int k, int v) {
            dots[u] += kept.at(k, v) * element(gathered.rows[u][k], v);
        });
    }
}

__device__ inline void spread_shares(acc_t (&shares)[U]) {
    spread_over_head<ON_TENSOR_CORES ? QUAD : 1>(shares);
}
