// rows.cuh: which rows of the adjacency a warp walks, and how it walks the edges of one row.
//
// Blocks [0, chunk_blocks) take pieces of long rows, one piece a row slot; the blocks after them take
// `rows_per_slot` consecutive whole rows a slot and skip the long ones. Pieces go first, since they
// are the longest units; whole rows stay in stored order, which is what keeps neighbours in L2.
// Prelude: index_t, WARPS, R, S, U
#pragma once

#include "lanes.cuh"

struct Adjacency {
    const index_t* __restrict__ indptr;        // (num_rows + 1)
    const index_t* __restrict__ indices;       // (E), column of each position
    const index_t* __restrict__ chunk_rows;    // (num_chunks), row of each piece
    const index_t* __restrict__ chunk_begins;  // (num_chunks), first position of each piece
    int64_t num_rows;
    int64_t num_chunks;
    int64_t chunk_size;
    int64_t rows_per_slot;
};

struct Unit {
    index_t row;    // -1: nothing to do, but stay for the warp's shuffles
    index_t chunk;  // -1: a whole row
    index_t begin;
    index_t end;
    index_t ids[U];  // what fetch() gave for this lane's first edges
};

constexpr int SLOTS_PER_BLOCK = WARPS * R;

__device__ inline int64_t count_chunk_blocks(const Adjacency& adj) {
    return (adj.num_chunks + SLOTS_PER_BLOCK - 1) / SLOTS_PER_BLOCK;
}

__device__ inline bool in_chunk_block(const Adjacency& adj) {
    return blockIdx.x < count_chunk_blocks(adj);
}

// A unit whose first ids are on their way. fetch(position) reads the id that leads to the operand (a
// column, an edge id).
template <class Fetch>
__device__ inline Unit make_unit(
    const Lane& me,
    index_t row,
    index_t chunk,
    index_t begin,
    index_t end,
    Fetch fetch) {
    Unit unit{row, chunk, begin, end, {}};
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const index_t position = begin + me.edge_slot + u * S;
        unit.ids[u] = position < end ? fetch(position) : 0;
    }
    return unit;
}

// Call body(unit) for every unit of this warp's slots, all 32 lanes together. While a row is worked
// on, the first ids of the next one and the end of the one after that are being read.
template <class Fetch, class Body>
__device__ inline void for_each_unit(const Adjacency& adj, const Lane& me, Fetch fetch, Body body) {
    const int slot = static_cast<int>(threadIdx.x) / 32 * R + me.row_slot;
    const bool pieces = in_chunk_block(adj);
    index_t row = 0;  // the slot's first
    int rows = 0;     // how many the slot has
    index_t end = 0;  // of the row at hand
    index_t next_end = 0;
    Unit unit{-1, -1, 0, 0, {}};
    // A long row is one with more than two pieces' worth of edges; without pieces there is none.
    const int64_t longest = adj.num_chunks > 0 ? 2 * adj.chunk_size : 0x7fffffffffffffffLL;
    const auto whole_row = [&](int i, index_t begin, index_t end) {
        const bool here = i < rows && end - begin <= longest;
        return make_unit(me, here ? row + i : -1, -1, here ? begin : 0, here ? end : 0, fetch);
    };
    const auto row_end = [&](int i) { return i < rows ? adj.indptr[row + 1 + i] : 0; };
    if (pieces) {
        const int64_t chunk = static_cast<int64_t>(blockIdx.x) * SLOTS_PER_BLOCK + slot;
        if (chunk < adj.num_chunks) {
            const index_t owner = adj.chunk_rows[chunk];
            const int64_t begin = adj.chunk_begins[chunk];
            const int64_t row_end = adj.indptr[owner + 1];
            const int64_t stop =
                begin + adj.chunk_size < row_end ? begin + adj.chunk_size : row_end;
            unit = make_unit(
                me, owner, static_cast<index_t>(chunk), static_cast<index_t>(begin),
                static_cast<index_t>(stop), fetch);
        }
    } else {
        const int64_t block = static_cast<int64_t>(blockIdx.x) - count_chunk_blocks(adj);
        const int64_t first = (block * SLOTS_PER_BLOCK + slot) * adj.rows_per_slot;
        const int64_t left = adj.num_rows - first;
        rows =
            static_cast<int>(left < adj.rows_per_slot ? (left > 0 ? left : 0) : adj.rows_per_slot);
        row = static_cast<index_t>(first);
        const index_t begin = rows > 0 ? adj.indptr[row] : 0;
        end = row_end(0);
        next_end = row_end(1);
        unit = whole_row(0, begin, end);
    }
    const int rounds = pieces ? 1 : static_cast<int>(adj.rows_per_slot);
    for (int i = 1; i <= rounds; ++i) {
        const Unit next = whole_row(i, end, next_end);
        end = next_end;
        next_end = row_end(i + 1);
        if (R > 1 || unit.row >= 0) {
            body(unit);
        }
        unit = next;
    }
}

struct full_group {
    static constexpr bool value = true;
};
struct part_group {
    static constexpr bool value = false;
};

// Walk the edges of a unit in groups of S * U, U of them per lane; ids are read one group ahead.
// body(kind, ids, position, live) gets U ids; edge u of this lane stands at position + u * S, and edges
// u >= live exist in no slot of the warp. In a full_group every edge exists.
template <class Fetch, class Body>
__device__ inline void for_each_group(const Unit& unit, const Lane& me, Fetch fetch, Body body) {
    constexpr int GROUP = S * U;
    const index_t length = unit.end - unit.begin;
    index_t shortest = length;
    index_t longest = length;
#pragma unroll
    for (int step = SLOT_LANES; step < 32; step *= 2) {
        const index_t other_short = __shfl_xor_sync(FULL_WARP, shortest, step);
        const index_t other_long = __shfl_xor_sync(FULL_WARP, longest, step);
        shortest = other_short < shortest ? other_short : shortest;
        longest = other_long > longest ? other_long : longest;
    }
    index_t ids[U];
    index_t position = unit.begin + me.edge_slot;
#pragma unroll
    for (int u = 0; u < U; ++u) {
        ids[u] = unit.ids[u];
    }
    for (index_t done = 0; done < longest; done += GROUP) {
        index_t next[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const index_t ahead = position + GROUP + u * S;
            next[u] = ahead < unit.end ? fetch(ahead) : 0;
        }
        if (done + GROUP <= shortest) {
            body(full_group{}, ids, position, U);
        } else {
            const index_t left = (longest - done + S - 1) / S;
            body(part_group{}, ids, position, left < U ? static_cast<int>(left) : U);
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            ids[u] = next[u];
        }
        position += GROUP;
    }
}

// The rows of a group's U edges, all loads issued before any is used.
template <bool FULL>
__device__ inline void load_group(
    const scalar_t* __restrict__ array,
    const index_t (&cols)[U],
    const Lane& me,
    const Unit& unit,
    index_t position,
    packet_t (&rows)[U][K]) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        load_row(array, cols[u], me, FULL || position + u * S < unit.end, rows[u]);
    }
}

// This lane's share of a group's dot products: dot[u] = sum of other * rows[u].
template <bool FULL>
__device__ inline void dot_group(
    const packet_t (&rows)[U][K],
    const acc_t (&other)[K][V],
    int live,
    acc_t (&dot)[U]) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        dot[u] = NOTHING;
        if (FULL || u < live) {
            for_each_element([&](int k, int v) { dot[u] += other[k][v] * element(rows[u][k], v); });
        }
    }
}

// The same with the magnitude of a sum: folded[u] = sum of weight * |rows[u] + other|.
template <bool FULL>
__device__ inline void fold_group(
    const packet_t (&rows)[U][K],
    const acc_t (&weight)[K][V],
    const acc_t (&other)[K][V],
    int live,
    acc_t (&folded)[U]) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        folded[u] = NOTHING;
        if (FULL || u < live) {
            for_each_element([&](int k, int v) {
                folded[u] += weight[k][v] * magnitude(element(rows[u][k], v) + other[k][v]);
            });
        }
    }
}

// Add the shares of a head's lanes.
template <bool FULL>
__device__ inline void sum_group(int live, acc_t (&x)[U]) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (FULL || u < live) {
            x[u] = sum_over_head(x[u]);
        }
    }
}
