// vector.cuh: V consecutive elements moved as one load or store of up to 16 bytes.
// Prelude: scalar_t, acc_t, V
#pragma once

#include "scalar.cuh"

template <int BYTES>
struct raw_vector;
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

__device__ inline acc_t element(const packet_t& packet, int v) {
    return to_acc(reinterpret_cast<const scalar_t*>(&packet)[v]);
}

__device__ inline void store_packet(scalar_t* to, const acc_t (&x)[V]) {
    packet_t packet;
#pragma unroll
    for (int v = 0; v < V; ++v) {
        from_acc(x[v], reinterpret_cast<scalar_t*>(&packet)[v]);
    }
    *reinterpret_cast<packet_t*>(to) = packet;
}
