// prizes.cuh: what an edge gets of the gradient of its row, of which the winners were kept (winners.cuh).
//
// A row of less than 256 edges is told by the lowest byte of a place alone, since its largest value is that
// of no winner. So a backward pass over the edges of sources reads one byte an element and edge, the gradient
// where that fits, and the other bytes only where it fits in a long row.
// Prelude: as winners.cuh
#pragma once

#include "winners.cuh"

// What an edge knows of its place in the row at its other end; long rows are told by the sign.
struct Place {
    uint32_t place;
    bool in_long_row;
};

__device__ inline Place read_place(index_t stored) {
    const bool is_long = stored < 0;
    return Place{static_cast<uint32_t>(is_long ? ~stored : stored), is_long};
}

constexpr int WORDS = V > 4 ? V / 4 : 1;  // of 32 bits that hold a byte of V elements

// The elements of a lane's vector that an edge has won: the top bit of each byte.
struct Hits {
    uint32_t words[WORDS];

    __device__ bool any() const {
        uint32_t all = 0;
#pragma unroll
        for (int i = 0; i < WORDS; ++i) {
            all |= words[i];
        }
        return all != 0;
    }

    __device__ bool at(int v) const {
        return (words[v / 4] >> (v % 4 * 8 + 7)) & 1;
    }
};

__device__ inline bytes_t load_bytes(const uint8_t* __restrict__ from) {
    return __ldg(reinterpret_cast<const bytes_t*>(from));
}

__device__ inline Hits equal_bytes(const bytes_t& bytes, uint32_t byte) {
    const uint32_t wanted = (byte & 0xffu) * 0x01010101u;
    Hits hits;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
        uint32_t word = ~wanted;  // bytes beyond V fit nobody
        if constexpr (V >= 4) {
            word = reinterpret_cast<const uint32_t*>(&bytes)[i];
        } else {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                const uint32_t value = reinterpret_cast<const uint8_t*>(&bytes)[v];
                word = (word & ~(0xffu << 8 * v)) | value << 8 * v;
            }
        }
        const uint32_t differs = word ^ wanted;
        const uint32_t carry = (differs & 0x7f7f7f7fu) + 0x7f7f7f7fu;
        hits.words[i] = ~(carry | differs) & 0x80808080u;
    }
    return hits;
}

// The elements of a lane's vector at `at` that an edge has won, given their lowest plane.
__device__ inline Hits find_hits(
    const bytes_t& lowest,
    const uint8_t* __restrict__ winners,
    int64_t plane,
    int64_t at,
    const Place& edge) {
    Hits hits = equal_bytes(lowest, edge.place);
    if (WINNER_BYTES > 1 && edge.in_long_row && hits.any()) {
#pragma unroll
        for (int byte = 1; byte < WINNER_BYTES; ++byte) {
            const bytes_t more = load_bytes(winners + byte * plane + at);
            const Hits also = equal_bytes(more, edge.place >> 8 * byte);
#pragma unroll
            for (int i = 0; i < WORDS; ++i) {
                hits.words[i] &= also.words[i];
            }
        }
    }
    return hits;
}

// What leads from the edges of a source to what they have won.
struct Prizes {
    const scalar_t* __restrict__ grad_out;  // (N_dst, H, D)
    const uint8_t* __restrict__ winners;    // (WINNER_BYTES, N_dst, H, D)
    int64_t plane;                          // N_dst * H * D
};

template <bool FULL>
__device__ inline void read_places(
    const index_t* __restrict__ places,
    const Unit& unit,
    index_t position,
    Place (&edges)[U]) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const bool exists = FULL || position + u * S < unit.end;
        edges[u] = exists ? read_place(__ldg(places + position + u * S)) : Place{NOBODY, false};
    }
}

// Add the gradients that a group's edges have won. The bytes of all are on their way before the first is
// looked at, and so are all gradients.
template <bool FULL>
__device__ inline void add_prizes(
    const Prizes& prizes,
    const Place (&edges)[U],
    const index_t (&ids)[U],
    const Lane& me,
    const Unit& unit,
    index_t position,
    int live,
    acc_t (&sum)[K][V]) {
    bytes_t lowest[U][K];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const bool exists = FULL || position + u * S < unit.end;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            lowest[u][k] = bytes_t{};  // no edge that does not exist has place 0
            if (exists && owns(me, k)) {
                const int64_t at = ids[u] * static_cast<int64_t>(H * D) + me.offset + k * P * V;
                lowest[u][k] = load_bytes(prizes.winners + at);
            }
        }
    }
    Hits hits[U][K];
    packet_t grads[U][K];
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const int64_t at = ids[u] * static_cast<int64_t>(H * D) + me.offset + k * P * V;
            hits[u][k] = Hits{};
            if (owns(me, k)) {
                hits[u][k] = find_hits(lowest[u][k], prizes.winners, prizes.plane, at, edges[u]);
            }
            if (hits[u][k].any()) {
                grads[u][k] = load_packet(prizes.grad_out + at);
            }
        }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (!FULL && u >= live) {
            continue;
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if (hits[u][k].any()) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    if (hits[u][k].at(v)) {
                        sum[k][v] += element(grads[u][k], v);
                    }
                }
            }
        }
    }
}

// How no winner reads.
__device__ constexpr uint32_t nobody_of_bytes() {
    return WINNER_BYTES == 4 ? NOBODY : (1u << 8 * (WINNER_BYTES % 4)) - 1;
}

// The place at `at` from all planes. `size` is that of a plane.
__device__ inline uint32_t load_place(
    const uint8_t* __restrict__ winners,
    int64_t size,
    int64_t at) {
    uint32_t place = 0;
#pragma unroll
    for (int byte = 0; byte < WINNER_BYTES; ++byte) {
        place |= static_cast<uint32_t>(__ldg(winners + byte * size + at)) << 8 * byte;
    }
    return place == nobody_of_bytes() ? NOBODY : place;
}

// The places of a lane's elements of row `row`, NOBODY's where it is not live.
__device__ inline void load_places(
    const uint8_t* __restrict__ winners,
    int64_t num_rows,
    int64_t row,
    const Lane& me,
    bool live,
    uint32_t (&places)[K][V]) {
    constexpr uint32_t nobody = nobody_of_bytes();
#pragma unroll
    for (int k = 0; k < K; ++k) {
        bytes_t planes[WINNER_BYTES > 0 ? WINNER_BYTES : 1];
        const bool mine = live && owns(me, k);
#pragma unroll
        for (int byte = 0; byte < WINNER_BYTES; ++byte) {
            planes[byte] = bytes_t{};
            if (mine) {
                const int64_t at = (byte * num_rows + row) * (H * D) + me.offset + k * P * V;
                planes[byte] = load_bytes(winners + at);
            }
        }
#pragma unroll
        for (int v = 0; v < V; ++v) {
            uint32_t place = 0;
#pragma unroll
            for (int byte = 0; byte < WINNER_BYTES; ++byte) {
                const uint32_t part = reinterpret_cast<const uint8_t*>(&planes[byte])[v];
                place |= part << 8 * byte;
            }
            places[k][v] = mine && place != nobody ? place : NOBODY;
        }
    }
}
