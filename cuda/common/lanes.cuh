// lanes.cuh: how the 32 lanes of a warp share rows, edges, heads and elements.
//
//   lane = ((row_slot * S + edge_slot) * HPW + head_slot) * P + position
//
// R rows are walked at a time, S edges of each row at a time, HPW heads of each edge at a time, and
// P lanes share the D elements of a head: lane `position` owns vectors k = 0..K-1 of V elements, the
// k-th starting at element slice * (K * P * V) + (k * P + position) * V. blockIdx.y counts groups of
// HPW heads and, inside a group, SLICES slices of the elements; a kernel that needs a whole wide head
// walks LOOPS slices itself.
// Prelude: H, D, V, P, HPW, K, S, R, U, SLICES, LOOPS
#pragma once

#include "vector.cuh"

constexpr int ROW_LANES = P * HPW;         // lanes on one edge
constexpr int SLOT_LANES = ROW_LANES * S;  // lanes on one row
constexpr int SLICE = K * P * V;           // elements of a head that one pass covers
constexpr unsigned FULL_WARP = 0xffffffffu;

static_assert(SLOT_LANES * R == 32, "the lanes of a warp must be shared out exactly");
static_assert(D % V == 0, "a vector must not straddle heads");
static_assert(SLICES * LOOPS * SLICE >= D, "the slices must cover a head");

// True when no lane ever owns a vector outside (H, D): the predicates below vanish.
constexpr bool EVEN = H % HPW == 0 && D % SLICE == 0;

struct Lane {
    int row_slot;
    int edge_slot;
    int head;     // may be >= H: such lanes compute on zeros and write nothing
    int element;  // first element of vector 0 inside the head
    int offset;   // of vector 0 inside an (H, D) row
};

__device__ inline Lane this_lane() {
    const int lane = threadIdx.x % 32;
    Lane me;
    me.row_slot = lane / SLOT_LANES;
    me.edge_slot = lane / ROW_LANES % S;
    me.head = static_cast<int>(blockIdx.y) / SLICES * HPW + lane / P % HPW;
    me.element = static_cast<int>(blockIdx.y) % SLICES * SLICE + lane % P * V;
    me.offset = me.head * D + me.element;
    return me;
}

// The same lane on another slice of its head.
__device__ inline Lane on_slice(Lane me, int slice) {
    me.element += slice * SLICE;
    me.offset += slice * SLICE;
    return me;
}

__device__ inline bool owns(const Lane& me, int k) {
    return EVEN || (me.head < H && me.element + k * P * V < D);
}

__device__ inline bool owns_head(const Lane& me) {
    return H % HPW == 0 || me.head < H;
}

// Of the lane's head in an (N, H) array.
__device__ inline int64_t head_offset(int64_t row, const Lane& me) {
    return row * H + me.head;
}

// body(k, v) for every element that a lane may own, unrolled: k and v are constants in it.
template <class Body>
__device__ inline void for_each_element(Body body) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
            body(k, v);
        }
    }
}

constexpr acc_t NOTHING = static_cast<acc_t>(0);

__device__ inline void clear(acc_t (&x)[K][V]) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
            x[k][v] = NOTHING;
        }
    }
}

__device__ inline void fill(acc_t (&x)[U], acc_t value) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
        x[u] = value;
    }
}

// Where the lane's part of row 0 lies. Hidden from the compiler, which would otherwise add the offset
// to each row's: with a base, an address is one multiply-add instead of three instructions.
__device__ inline const scalar_t* lane_base(const scalar_t* array, const Lane& me) {
    const scalar_t* base = array + me.offset;
    asm("mov.b64 %0, %1;" : "=l"(base) : "l"(base));
    return base;
}

// The lane's K vectors of row `row` of an (N, H, D) array; vectors it does not own read as zero.
__device__ inline void load_row(
    const scalar_t* __restrict__ array,
    int64_t row,
    const Lane& me,
    bool live,
    packet_t (&packets)[K]) {
    const scalar_t* from = lane_base(array, me) + row * (H * D);
#pragma unroll
    for (int k = 0; k < K; ++k) {
        packets[k] = packet_t{};
        if (live && owns(me, k)) {
            packets[k] = load_packet(from + k * P * V);
        }
    }
}

__device__ inline void load_row(
    const scalar_t* __restrict__ array,
    int64_t row,
    const Lane& me,
    bool live,
    acc_t (&values)[K][V]) {
    packet_t packets[K];
    load_row(array, row, me, live, packets);
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
            values[k][v] = element(packets[k], v);
        }
    }
}

// The same of an array in the arithmetic type.
__device__ inline void load_numbers(
    const acc_t* __restrict__ array,
    int64_t row,
    const Lane& me,
    bool live,
    acc_t (&values)[K][V]) {
    constexpr int wide = 16 / static_cast<int>(sizeof(acc_t));
    constexpr int step = V < wide ? V : wide;
    using raw_t = typename raw_vector<step* static_cast<int>(sizeof(acc_t))>::type;
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int v = 0; v < V; v += step) {
            raw_t raw{};
            if (live && owns(me, k)) {
                const acc_t* from = array + row * (H * D) + me.offset + k * P * V + v;
                raw = __ldg(reinterpret_cast<const raw_t*>(from));
            }
#pragma unroll
            for (int i = 0; i < step; ++i) {
                values[k][v + i] = reinterpret_cast<const acc_t*>(&raw)[i];
            }
        }
    }
}

// Sum over the P lanes of a head; every lane gets it.
__device__ inline acc_t sum_over_head(acc_t x) {
#pragma unroll
    for (int step = P / 2; step > 0; step /= 2) {
        x += __shfl_xor_sync(FULL_WARP, x, step);
    }
    return x;
}

// The same for the U sums of a group's edges at once, each lane keeping a few of them: while a lane has
// more than its share, two lanes swap halves. A shuffle then carries two sums, and what follows from a
// sum is computed once and not in every lane. Lane `position` keeps x[0 .. PER_LANE - 1], which belong to
// edges first_spread(..) onward.
constexpr int SPREAD = U < P ? U : P;  // groups of lanes that the edges are shared out to
constexpr int PER_LANE = U / SPREAD;
static_assert((U & (U - 1)) == 0, "the edges of a group must be shared out evenly");

// SAME neighbouring lanes come with equal sums and need no exchange among them.
template <int SAME = 1, int N = U, int STEP = P / 2>
__device__ inline void spread_over_head(acc_t (&x)[U]) {
    if constexpr (N > PER_LANE) {
        const bool upper = threadIdx.x & STEP;
#pragma unroll
        for (int u = 0; u < N / 2; ++u) {
            const acc_t keep = upper ? x[u + N / 2] : x[u];
            const acc_t give = upper ? x[u] : x[u + N / 2];
            x[u] = STEP < SAME ? keep : keep + __shfl_xor_sync(FULL_WARP, give, STEP);
        }
        spread_over_head<SAME, N / 2, STEP / 2>(x);
    } else if constexpr (STEP >= SAME) {
#pragma unroll
        for (int u = 0; u < N; ++u) {
            x[u] += __shfl_xor_sync(FULL_WARP, x[u], STEP);
        }
        spread_over_head<SAME, N, STEP / 2>(x);
    }
}

__device__ inline int first_spread() {
    return threadIdx.x % P / (P / SPREAD) * PER_LANE;
}

// What the lanes that keep edge `u` hold in x, in every lane of the head.
__device__ inline acc_t from_spread(const acc_t (&x)[U], int u) {
    return SPREAD == 1 ? x[u]
                       : __shfl_sync(FULL_WARP, x[u % PER_LANE], u / PER_LANE * (P / SPREAD), P);
}

// Sum, or largest, over the lanes that keep different edges; every lane gets it.
__device__ inline acc_t sum_over_spread(acc_t x) {
#pragma unroll
    for (int step = P / 2; step >= P / SPREAD && step > 0; step /= 2) {
        x += __shfl_xor_sync(FULL_WARP, x, step);
    }
    return x;
}

__device__ inline acc_t largest_over_spread(acc_t x) {
#pragma unroll
    for (int step = P / 2; step >= P / SPREAD && step > 0; step /= 2) {
        x = largest(x, __shfl_xor_sync(FULL_WARP, x, step));
    }
    return x;
}

// Sum, or largest, over the S edge slots of a row; every lane gets it.
__device__ inline acc_t sum_over_slots(acc_t x) {
#pragma unroll
    for (int slot = 1; slot < S; slot *= 2) {
        x += __shfl_xor_sync(FULL_WARP, x, slot * ROW_LANES);
    }
    return x;
}

// What the first edge slot of the row holds.
__device__ inline acc_t from_first_slot(const Lane& me, acc_t x) {
    const int lane = static_cast<int>(threadIdx.x) % 32 - me.edge_slot * ROW_LANES;
    return S == 1 ? x : __shfl_sync(FULL_WARP, x, lane);
}

__device__ inline acc_t largest_over_slots(acc_t x) {
#pragma unroll
    for (int slot = 1; slot < S; slot *= 2) {
        x = largest(x, __shfl_xor_sync(FULL_WARP, x, slot * ROW_LANES));
    }
    return x;
}

// Sum K vectors over the edge slots of a row, each slot keeping a share of the vectors: while the
// number N of vectors left is even, two slots swap halves, which costs half of what a full exchange
// would. Afterwards x[0..OWNED-1] are the vectors first_owned(..) onward.
template <int STEP, int N>
__device__ inline void scatter_over_slots(const Lane& me, acc_t (&x)[K][V]) {
    if constexpr ((1 << STEP) < S) {
        constexpr int partner = ROW_LANES << STEP;
        if constexpr (N % 2 == 0) {
            const bool upper = (me.edge_slot >> STEP) & 1;
#pragma unroll
            for (int k = 0; k < N / 2; ++k) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    const acc_t keep = upper ? x[k + N / 2][v] : x[k][v];
                    const acc_t give = upper ? x[k][v] : x[k + N / 2][v];
                    x[k][v] = keep + __shfl_xor_sync(FULL_WARP, give, partner);
                }
            }
            scatter_over_slots<STEP + 1, N / 2>(me, x);
        } else {
#pragma unroll
            for (int k = 0; k < N; ++k) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    x[k][v] += __shfl_xor_sync(FULL_WARP, x[k][v], partner);
                }
            }
            scatter_over_slots<STEP + 1, N>(me, x);
        }
    }
}

// The share of vectors that scatter_over_slots leaves in a slot, of vectors that all slots hold alike.
template <int STEP, int N>
__device__ inline void keep_owned(const Lane& me, acc_t (&x)[K][V]) {
    if constexpr ((1 << STEP) < S && N % 2 == 0) {
        const bool upper = (me.edge_slot >> STEP) & 1;
#pragma unroll
        for (int k = 0; k < N / 2; ++k) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                x[k][v] = upper ? x[k + N / 2][v] : x[k][v];
            }
        }
        keep_owned<STEP + 1, N / 2>(me, x);
    }
}

constexpr int count_halvings(int n, int slots) {
    return slots > 1 && n % 2 == 0 ? 1 + count_halvings(n / 2, slots / 2) : 0;
}
constexpr int HALVINGS = count_halvings(K, S);
constexpr int OWNED = K >> HALVINGS;

__device__ inline int first_owned(const Lane& me) {
    int first = 0;
#pragma unroll
    for (int step = 0; step < HALVINGS; ++step) {
        first += ((me.edge_slot >> step) & 1) * (K >> (step + 1));
    }
    return first;
}

// Slots beyond those that split the vectors hold copies: one of them writes.
__device__ inline bool is_writer(const Lane& me) {
    return (me.edge_slot >> HALVINGS) == 0;
}

// Write the owned vectors of a finished row.
__device__ inline void store_row(
    const Lane& me,
    int64_t row,
    const acc_t (&x)[K][V],
    scalar_t* out) {
    const int first = first_owned(me);
#pragma unroll
    for (int k = 0; k < OWNED; ++k) {
        if (is_writer(me) && owns(me, first + k)) {
            store_packet(out + row * (H * D) + me.offset + (first + k) * P * V, x[k]);
        }
    }
}

// The same for a row of sums that a merge will read.
__device__ inline void store_piece(
    const Lane& me,
    int64_t piece,
    const acc_t (&x)[K][V],
    acc_t* part) {
    const int first = first_owned(me);
#pragma unroll
    for (int k = 0; k < OWNED; ++k) {
        if (is_writer(me) && owns(me, first + k)) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                part[piece * (H * D) + me.offset + (first + k) * P * V + v] = x[k][v];
            }
        }
    }
}
