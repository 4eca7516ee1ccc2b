// scalar.cuh: storage types, their conversion to arithmetic types, and fixed-width integers.
// NVRTC brings no headers and the CUDA half headers are not always installed, so the two 16-bit types
// are defined here; arithmetic always happens in acc_t (float, or double for double storage).
// Prelude: scalar_t, acc_t, index_t
#pragma once

typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;

struct half_t {
    uint16_t bits;
};

struct bfloat16_t {
    uint16_t bits;
};

__device__ inline float to_acc(float x) {
    return x;
}

__device__ inline double to_acc(double x) {
    return x;
}

__device__ inline float to_acc(half_t x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

__device__ inline float to_acc(bfloat16_t x) {
    return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}

__device__ inline void from_acc(float x, float& y) {
    y = x;
}

__device__ inline void from_acc(double x, double& y) {
    y = x;
}

__device__ inline void from_acc(float x, half_t& y) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}

// Round to nearest even by hand: the conversion instruction does not exist before sm_80.
__device__ inline void from_acc(float x, bfloat16_t& y) {
    const uint32_t bits = __float_as_uint(x);
    const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    y.bits = static_cast<uint16_t>((x == x ? rounded : bits | 0x400000u) >> 16);
}

// Two 16-bit numbers at a time, as they lie in a register. Taken one by one, an element costs three
// instructions instead of one, which is more than the arithmetic on it. (A shift and a mask would do for
// bfloat16 as well, but the compiler then does both twice to save registers.)
template <class T>
__device__ inline float low_to_acc(uint32_t pair);
template <class T>
__device__ inline float high_to_acc(uint32_t pair);
template <class T>
__device__ inline uint32_t pair_from_acc(float low, float high);

template <>
__device__ inline float low_to_acc<bfloat16_t>(uint32_t pair) {
    float x;
    asm("prmt.b32 %0, %1, 0, 0x1044;" : "=f"(x) : "r"(pair));
    return x;
}

template <>
__device__ inline float high_to_acc<bfloat16_t>(uint32_t pair) {
    float x;
    asm("prmt.b32 %0, %1, 0, 0x3244;" : "=f"(x) : "r"(pair));
    return x;
}

template <>
__device__ inline uint32_t pair_from_acc<bfloat16_t>(float low, float high) {
#if __CUDA_ARCH__ >= 800
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    bfloat16_t first;
    bfloat16_t second;
    from_acc(low, first);
    from_acc(high, second);
    return first.bits | static_cast<uint32_t>(second.bits) << 16;
#endif
}

template <>
__device__ inline float low_to_acc<half_t>(uint32_t pair) {
    float x;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}"
        : "=f"(x)
        : "r"(pair));
    return x;
}

template <>
__device__ inline float high_to_acc<half_t>(uint32_t pair) {
    float x;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}"
        : "=f"(x)
        : "r"(pair));
    return x;
}

template <>
__device__ inline uint32_t pair_from_acc<half_t>(float low, float high) {
    uint32_t pair;
    asm("{.reg .b16 low, high; cvt.rn.f16.f32 low, %1; cvt.rn.f16.f32 high, %2; "
        "mov.b32 %0, {low, high};}"
        : "=r"(pair)
        : "f"(low), "f"(high));
    return pair;
}

template <class T>
constexpr bool is_bfloat16 = false;
template <>
constexpr bool is_bfloat16<bfloat16_t> = true;

// Larger and smaller ones of two pairs; NaN where one of them is.
template <class T>
__device__ inline uint32_t larger_pair(uint32_t a, uint32_t b) {
    uint32_t c = 0;
#if __CUDA_ARCH__ >= 800
    if constexpr (is_bfloat16<T>) {
        asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    } else {
        asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    }
#endif
    return c;
}

template <class T>
__device__ inline uint32_t smaller_pair(uint32_t a, uint32_t b) {
    uint32_t c = 0;
#if __CUDA_ARCH__ >= 800
    if constexpr (is_bfloat16<T>) {
        asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    } else {
        asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    }
#endif
    return c;
}

#if __CUDA_ARCH__ >= 800
constexpr bool EXTREMES_OF_PAIRS = true;
#else
constexpr bool EXTREMES_OF_PAIRS = false;
#endif

// Of two pairs the numbers that are largest (MOST) or smallest, where a card has them; a NaN loses.
template <class T, bool MOST>
__device__ inline uint32_t number_pair(uint32_t a, uint32_t b) {
    uint32_t c = 0;
#if __CUDA_ARCH__ >= 800
    if constexpr (is_bfloat16<T> && MOST) {
        asm("max.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    } else if constexpr (is_bfloat16<T>) {
        asm("min.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    } else if constexpr (MOST) {
        asm("max.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    } else {
        asm("min.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    }
#endif
    return c;
}

// Two infinities, negative ones if asked.
template <class T>
__device__ constexpr uint32_t infinite_pair(bool negative) {
    const uint32_t one = is_bfloat16<T> ? 0x7f80u : 0x7c00u;
    return (one | (negative ? 0x8000u : 0u)) * 0x10001u;
}

// All bits of the numbers of a pair for which a > b.
template <class T>
__device__ inline uint32_t mask_above(uint32_t a, uint32_t b) {
    uint32_t mask;
    if constexpr (is_bfloat16<T>) {
        asm("set.gt.u32.bf16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
    } else {
        asm("set.gt.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
    }
    return mask;
}

struct PairAbove {
    bool low;
    bool high;
};

#if __CUDA_ARCH__ >= 900
template <class T>
constexpr bool COMPARES_PAIRS = true;
#else
template <class T>
constexpr bool COMPARES_PAIRS = !is_bfloat16<T>;
#endif

// a > b, for both numbers of two pairs.
template <class T>
__device__ inline PairAbove is_pair_above(uint32_t a, uint32_t b) {
    uint32_t low;
    uint32_t high;
    if constexpr (is_bfloat16<T>) {
        asm("{.reg .pred p, q; setp.gt.bf16x2 p|q, %2, %3; "
            "selp.u32 %0, 1, 0, p; selp.u32 %1, 1, 0, q;}"
            : "=r"(low), "=r"(high)
            : "r"(a), "r"(b));
    } else {
        asm("{.reg .pred p, q; setp.gt.f16x2 p|q, %2, %3; "
            "selp.u32 %0, 1, 0, p; selp.u32 %1, 1, 0, q;}"
            : "=r"(low), "=r"(high)
            : "r"(a), "r"(b));
    }
    return PairAbove{low != 0, high != 0};
}

__device__ inline float fast_exp2(float x) {
    return exp2f(x);
}

__device__ inline double fast_exp2(double x) {
    return exp2(x);
}

// To one unit in the last place, without the steps that round it.
__device__ inline float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ inline double reciprocal(double x) {
    return 1 / x;
}

__device__ inline float largest(float a, float b) {
    return fmaxf(a, b);
}

__device__ inline double largest(double a, double b) {
    return fmax(a, b);
}

__device__ inline float smallest(float a, float b) {
    return fminf(a, b);
}

__device__ inline double smallest(double a, double b) {
    return fmin(a, b);
}

__device__ inline float magnitude(float x) {
    return fabsf(x);
}

__device__ inline double magnitude(double x) {
    return fabs(x);
}

// A product that the compiler does not fuse with a sum: two kernels then round it alike.
__device__ inline float rounded_product(float a, float b) {
    return __fmul_rn(a, b);
}

__device__ inline double rounded_product(double a, double b) {
    return __dmul_rn(a, b);
}

// log2(e): scores are kept in base 2, so that an exponential is one instruction.
constexpr acc_t LOG2E = static_cast<acc_t>(1.4426950408889634073599);
constexpr acc_t LN2 = static_cast<acc_t>(0.6931471805599453094172);

// Minus infinity without <limits>.
__device__ inline acc_t minus_infinity() {
    return static_cast<acc_t>(-__int_as_float(0x7f800000));
}
