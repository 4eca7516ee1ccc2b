// vector.cuh: V consecutive elements moved as one load or store of up to 16 bytes.
// Prelude: scalar_t, acc_t, V
#pragma once

#include "scalar.cuh"

template <int BYTES>
struct raw_vector;
template <>
struct raw_vector<1> {
    using type = unsigned char;
};
template <>
struct raw_vector<2> {
    using type = unsigned short;
};
template <>
struct raw_vector<4> {
    using type = unsigned int;
};
template <>
struct raw_vector<8> {
    using type = uint2;
};
template <>
struct raw_vector<16> {
    using type = uint4;
};

using packet_t = raw_vector<V* static_cast<int>(sizeof(scalar_t))>::type;

__device__ inline packet_t load_packet(const scalar_t* __restrict__ from) {
    return __ldg(reinterpret_cast<const packet_t*>(from));
}

// One number through the read-only cache, in the arithmetic type.
template <class T>
__device__ inline acc_t load_number(const T* __restrict__ from) {
    using raw_t = typename raw_vector<static_cast<int>(sizeof(T))>::type;
    const raw_t raw = __ldg(reinterpret_cast<const raw_t*>(from));
    return to_acc(reinterpret_cast<const T&>(raw));
}

template <class T>
constexpr bool in_pairs = sizeof(T) == 2 && V > 1;

// A packet of f(pair of a, pair of b), for pairs of 16-bit numbers.
template <class Body>
__device__ inline packet_t by_pairs(const packet_t& a, const packet_t& b, Body body) {
    packet_t c;
#pragma unroll
    for (int i = 0; i < V / 2; ++i) {
        reinterpret_cast<uint32_t*>(&c)[i] = body(
            reinterpret_cast<const uint32_t*>(&a)[i], reinterpret_cast<const uint32_t*>(&b)[i]);
    }
    return c;
}

template <class T>
__device__ inline acc_t element_of(const packet_t& packet, int v) {
    if constexpr (in_pairs<T>) {
        const uint32_t pair = reinterpret_cast<const uint32_t*>(&packet)[v / 2];
        return v % 2 == 0 ? low_to_acc<T>(pair) : high_to_acc<T>(pair);
    } else {
        return to_acc(reinterpret_cast<const T*>(&packet)[v]);
    }
}

__device__ inline acc_t element(const packet_t& packet, int v) {
    return element_of<scalar_t>(packet, v);
}

template <class T>
__device__ inline void store_packet(T* to, const acc_t (&x)[V]) {
    packet_t packet;
#pragma unroll
    for (int v = 0; v < V; v += in_pairs<T> ? 2 : 1) {
        if constexpr (in_pairs<T>) {
            reinterpret_cast<uint32_t*>(&packet)[v / 2] = pair_from_acc<T>(x[v], x[v + 1]);
        } else {
            from_acc(x[v], reinterpret_cast<T*>(&packet)[v]);
        }
    }
    *reinterpret_cast<packet_t*>(to) = packet;
}
