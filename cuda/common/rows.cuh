// rows.cuh: which rows of the adjacency a warp walks, and how it walks the edges of one row.
//
// Blocks [0, chunk_blocks) take pieces of long rows, one piece a row slot; the blocks after them take
// `rows_per_slot` consecutive whole rows a slot and skip the long ones. Pieces go first, since they
// are the longest units; whole rows stay in stored order, which is what keeps neighbours in L2.
// Prelude: index_t, WARPS, R, S, U, AHEAD
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
    int64_t row;    // -1: nothing to do, but stay for the warp's shuffles
    int64_t chunk;  // -1: a whole row
    index_t begin;
    index_t end;
};

constexpr int SLOTS_PER_BLOCK = WARPS * R;

__device__ inline int64_t count_chunk_blocks(const Adjacency& adj) {
    return (adj.num_chunks + SLOTS_PER_BLOCK - 1) / SLOTS_PER_BLOCK;
}

__device__ inline bool in_chunk_block(const Adjacency& adj) {
    return blockIdx.x < count_chunk_blocks(adj);
}

// More than two pieces' worth of edges; without pieces no row is long.
__device__ inline bool is_long(const Adjacency& adj, index_t length) {
    return adj.num_chunks > 0 && length > 2 * adj.chunk_size;
}

// Call body(unit) for every unit of this warp's slots, all 32 lanes together.
template <class Body>
__device__ inline void for_each_unit(const Adjacency& adj, const Lane& me, Body body) {
    const int slot = static_cast<int>(threadIdx.x) / 32 * R + me.row_slot;
    const int64_t chunk_blocks = count_chunk_blocks(adj);
    if (in_chunk_block(adj)) {
        const int64_t chunk = static_cast<int64_t>(blockIdx.x) * SLOTS_PER_BLOCK + slot;
        Unit unit{-1, -1, 0, 0};
        if (chunk < adj.num_chunks) {
            unit.row = adj.chunk_rows[chunk];
            unit.chunk = chunk;
            unit.begin = adj.chunk_begins[chunk];
            const int64_t row_end = adj.indptr[unit.row + 1];
            const int64_t piece_end = unit.begin + adj.chunk_size;
            unit.end = static_cast<index_t>(piece_end < row_end ? piece_end : row_end);
        }
        body(unit);
        return;
    }
    const int64_t first =
        ((static_cast<int64_t>(blockIdx.x) - chunk_blocks) * SLOTS_PER_BLOCK + slot) *
        adj.rows_per_slot;
    for (int nth = 0; nth < adj.rows_per_slot; ++nth) {
        const int64_t row = first + nth;
        Unit unit{-1, -1, 0, 0};
        if (row < adj.num_rows) {
            const index_t begin = adj.indptr[row];
            const index_t end = adj.indptr[row + 1];
            if (!is_long(adj, end - begin)) {
                unit = Unit{row, -1, begin, end};
            }
        }
        if (R > 1 || unit.row >= 0) {
            body(unit);
        }
    }
}

struct full_group {
    static constexpr bool value = true;
};
struct part_group {
    static constexpr bool value = false;
};

constexpr int GROUP = S * U;  // edges of a row that a warp takes together

// Of the rows that the warp's slots walk.
struct Lengths {
    index_t shortest;
    index_t longest;
};

__device__ inline Lengths lengths_in_warp(const Unit& unit) {
    Lengths found{unit.end - unit.begin, unit.end - unit.begin};
#pragma unroll
    for (int step = SLOT_LANES; step < 32; step *= 2) {
        const index_t other_short = __shfl_xor_sync(FULL_WARP, found.shortest, step);
        const index_t other_long = __shfl_xor_sync(FULL_WARP, found.longest, step);
        found.shortest = other_short < found.shortest ? other_short : found.shortest;
        found.longest = other_long > found.longest ? other_long : found.longest;
    }
    return found;
}

template <class Fetch>
__device__ inline void fetch_ids(
    const Unit& unit,
    index_t position,
    Fetch fetch,
    index_t (&ids)[U]) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        ids[u] = position + u * S < unit.end ? fetch(position + u * S) : 0;
    }
}

// body(kind, live) for the group that comes after `done` edges.
template <class Body>
__device__ inline void take_group(const Lengths& lengths, index_t done, Body body) {
    if (done + GROUP <= lengths.shortest) {
        body(full_group{}, U);
    } else {
        const index_t left = (lengths.longest - done + S - 1) / S;
        body(part_group{}, left < U ? static_cast<int>(left) : U);
    }
}

// Walk the edges of a unit in groups, U of them per lane. fetch(position) reads the id that
// leads to the operand (a column, an edge id); it is issued one group ahead. Reading ahead across rows
// was slower: the registers it takes cost more than the wait it saves. So was a bounded grid that
// strides over the rows: its blocks drift apart, and with them what they share in L2.
// body(kind, ids, position, live) gets U ids; edge u of this lane stands at position + u * S, and edges
// u >= live exist in no slot of the warp. In a full_group every edge exists.
template <class Fetch, class Body>
__device__ inline void for_each_group(const Unit& unit, const Lane& me, Fetch fetch, Body body) {
    const Lengths lengths = lengths_in_warp(unit);
    index_t position = unit.begin + me.edge_slot;
    index_t ids[U];
    fetch_ids(unit, position, fetch, ids);
    for (index_t done = 0; done < lengths.longest; done += GROUP) {
        index_t next[U];
        fetch_ids(unit, position + GROUP, fetch, next);
        take_group(lengths, done, [&](auto kind, int live) { body(kind, ids, position, live); });
#pragma unroll
        for (int u = 0; u < U; ++u) {
            ids[u] = next[u];
        }
        position += GROUP;
    }
}

// The rows of a group's U edges.
struct Gathered {
    packet_t rows[U][K];
};

// All loads are issued before any is used.
template <bool FULL>
__device__ inline Gathered gather(
    const scalar_t* __restrict__ array,
    const index_t (&cols)[U],
    const Lane& me,
    const Unit& unit,
    index_t position) {
    Gathered gathered;
#pragma unroll
    for (int u = 0; u < U; ++u) {
        load_row(array, cols[u], me, FULL || position + u * S < unit.end, gathered.rows[u]);
    }
    return gathered;
}

// Add up rows of a group's edges.
template <bool FULL>
__device__ inline void add_rows(
    const acc_t* __restrict__ array,
    const index_t (&cols)[U],
    const Lane& me,
    const Unit& unit,
    index_t position,
    int live,
    acc_t (&sum)[K][V]) {
    acc_t rows[U][K][V];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        load_numbers(array, cols[u], me, FULL || position + u * S < unit.end, rows[u]);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (FULL || u < live) {
            for_each_element([&](int k, int v) { sum[k][v] += rows[u][k][v]; });
        }
    }
}

// Walk the edges of a unit as for_each_group does, with what load(kind, ids, position) gathers for a group
// in place of its ids. AHEAD issues a group's loads before the work on the one before, so that one
// hides the other, for twice the registers of what is loaded.
template <class Fetch, class Load, class Body>
__device__ inline void for_each_gathered(
    const Unit& unit,
    const Lane& me,
    Fetch fetch,
    Load load,
    Body body) {
    if constexpr (AHEAD) {
        const Lengths lengths = lengths_in_warp(unit);
        index_t position = unit.begin + me.edge_slot;
        index_t ids[U];
        fetch_ids(unit, position, fetch, ids);
        auto gathered = load(part_group{}, ids, position);
        fetch_ids(unit, position + GROUP, fetch, ids);
        for (index_t done = 0; done < lengths.longest; done += GROUP) {
            const auto next = load(part_group{}, ids, position + GROUP);
            fetch_ids(unit, position + 2 * GROUP, fetch, ids);
            take_group(
                lengths, done, [&](auto kind, int live) { body(kind, gathered, position, live); });
            gathered = next;
            position += GROUP;
        }
    } else {
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&ids)[U], index_t position, int live) {
                body(kind, load(kind, ids, position), position, live);
            });
    }
}

// Evaluate body(u, k, v) for every element of every edge of a group that exists in some slot. An edge's
// elements come together, so that a 16-bit one is converted once for all that the body does with it.
template <bool FULL, class Body>
__device__ inline void for_each_edge_element(int live, Body body) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        if (FULL || u < live) {
            for_each_element([&](int k, int v) { body(u, k, v); });
        }
    }
}

// Position of the j-th edge that this lane keeps after spread_over_head.
__device__ inline index_t spread_position(index_t position, int j) {
    return position + (first_spread() + j) * S;
}

// The j-th of them in an array over the group's edges.
template <class T>
__device__ inline T pick_spread(const T (&x)[U], int j) {
    T picked = x[j];
#pragma unroll
    for (int u = PER_LANE; u < U; u += PER_LANE) {
        picked = first_spread() == u ? x[u + j] : picked;
    }
    return picked;
}
