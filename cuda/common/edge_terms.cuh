// edge_terms.cuh: what single edges bring into attention: a bias of the score, a factor of the attention
// value, and dropout. A lane reads them for the edges that it keeps (spread_over_head) and its head.
// Prelude: those of rows.cuh, EDGE_BIAS and EDGE_WEIGHT (0 none, 1 one number an edge, 2 one an edge and
//   head), DROPOUT (0 none, 1 drawn by each lane, 2 shared by the lanes of an edge), PERMUTED (eids given)
#pragma once

#include "dropout.cuh"
#include "rows.cuh"

struct EdgeTerms {
    const scalar_t* __restrict__ bias;    // (E) or (E, H), edge-id order
    const scalar_t* __restrict__ weight;  // (E) or (E, H), edge-id order
    const index_t* __restrict__ eids;     // (E), position -> edge id
    Dropout dropout;
};

__device__ inline EdgeTerms make_terms(
    const scalar_t* bias,
    const scalar_t* weight,
    const index_t* eids,
    const int64_t* seed,
    int64_t drop_below,
    acc_t keep_scale) {
    EdgeTerms terms{bias, weight, eids, Dropout{}};
    if (DROPOUT) {
        terms.dropout = make_dropout(seed, drop_below, keep_scale);
    }
    return terms;
}

// Of the edges that a lane keeps.
struct KeptTerms {
    acc_t bias[PER_LANE];
    acc_t weight[PER_LANE];
    acc_t keep[PER_LANE];  // 0 where dropout drops, else its scale
};

__device__ inline int64_t edge_at(const EdgeTerms& terms, index_t position) {
    return PERMUTED ? terms.eids[position] : position;
}

template <int KIND>
__device__ inline acc_t edge_number(
    const scalar_t* __restrict__ from,
    int64_t edge,
    const Lane& me) {
    return load_number(from + (KIND == 1 ? edge : edge * H + me.head));
}

template <bool FULL>
__device__ inline bool keeps_edge(const Unit& unit, index_t position, int j) {
    return FULL || spread_position(position, j) < unit.end;
}

// Where several lanes keep the same edge, each may draw for another of so many groups: less to compute, but
// one more thing to load before a row begins.
constexpr int COPIES = P / SPREAD;
constexpr bool SHARES_DRAWS = DROPOUT == 2 && COPIES > 1;

// The terms as a row needs them, whose groups are loaded in turn.
struct RowTerms : EdgeTerms {
    index_t drawn_next;  // edge whose dropout this lane draws in the next COPIES groups
    acc_t keep;          // what it drew in these
};

// The edge that this lane draws for, of the COPIES groups from `position` onward.
__device__ inline index_t edge_to_draw(const EdgeTerms& terms, const Unit& unit, index_t position) {
    const index_t at =
        spread_position(position, 0) + static_cast<int>(threadIdx.x) % COPIES * GROUP;
    return at < unit.end ? static_cast<index_t>(edge_at(terms, at)) : 0;
}

__device__ inline RowTerms begin_row(const EdgeTerms& terms, const Lane& me, const Unit& unit) {
    RowTerms row{terms, 0, NOTHING};
    if constexpr (SHARES_DRAWS) {
        row.drawn_next = edge_to_draw(terms, unit, unit.begin + me.edge_slot);
    }
    return row;
}

__device__ inline acc_t draw(const EdgeTerms& terms, int64_t edge, const Lane& me) {
    return keeps(terms.dropout, edge, me.head) ? terms.dropout.scale : NOTHING;
}

// Dropout of the one edge of a group that this lane keeps.
__device__ inline acc_t shared_draw(
    RowTerms& terms,
    const Lane& me,
    const Unit& unit,
    index_t position) {
    const int nth = static_cast<int>(position - unit.begin) / GROUP % COPIES;
    if (nth == 0) {
        terms.keep = draw(terms, terms.drawn_next, me);
        terms.drawn_next = edge_to_draw(terms, unit, position + COPIES * GROUP);
    }
    const int holder = static_cast<int>(threadIdx.x) % P / COPIES * COPIES + nth;
    return __shfl_sync(FULL_WARP, terms.keep, holder, P);
}

template <bool FULL>
__device__ inline KeptTerms load_terms(
    RowTerms& terms,
    const Lane& me,
    const Unit& unit,
    index_t position) {
    constexpr bool looks_up = EDGE_BIAS || EDGE_WEIGHT || (DROPOUT && !SHARES_DRAWS);
    KeptTerms kept;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        kept.bias[j] = NOTHING;
        kept.weight[j] = 1;
        kept.keep[j] = 1;
        if constexpr (looks_up) {
            if (keeps_edge<FULL>(unit, position, j) && owns_head(me)) {
                const int64_t edge = edge_at(terms, spread_position(position, j));
                if constexpr (EDGE_BIAS > 0) {
                    kept.bias[j] = edge_number<EDGE_BIAS>(terms.bias, edge, me);
                }
                if constexpr (EDGE_WEIGHT > 0) {
                    kept.weight[j] = edge_number<EDGE_WEIGHT>(terms.weight, edge, me);
                }
                if constexpr (DROPOUT && !SHARES_DRAWS) {
                    kept.keep[j] = draw(terms, edge, me);
                }
            }
        }
        if constexpr (SHARES_DRAWS) {
            kept.keep[j] = shared_draw(terms, me, unit, position);
        }
    }
    return kept;
}

// What becomes of the softmax p of the j-th edge: p times this is its attention.
__device__ inline acc_t factor_of(const KeptTerms& kept, int j) {
    return kept.weight[j] * kept.keep[j];
}

// x of the gradient formulas, from what the attention value's gradient is. Both passes of a backward round
// it alike, so that where a row has one edge, x is delta.
__device__ inline acc_t weighted_inner(const KeptTerms& kept, int j, acc_t inner) {
    return rounded_product(factor_of(kept, j), inner);
}

// A gradient that is summed over the heads is rounded only then.
template <bool SHARED>
struct edge_gradient {
    using type = scalar_t;
};
template <>
struct edge_gradient<true> {
    using type = acc_t;
};
using bias_grad_t = edge_gradient<EDGE_BIAS == 1>::type;
using weight_grad_t = edge_gradient<EDGE_WEIGHT == 1>::type;

// Several lanes keep the same edge; one of them writes what belongs to it.
__device__ inline bool writes_spread() {
    return threadIdx.x % P % (P / SPREAD) == 0;
}

// Call write(offset in an (E, H) array, j) for the edges that this lane keeps and writes.
template <bool FULL, class Write>
__device__ inline void for_each_kept(
    const EdgeTerms& terms,
    const Lane& me,
    const Unit& unit,
    index_t position,
    Write write) {
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        if (keeps_edge<FULL>(unit, position, j) && owns_head(me) && writes_spread()) {
            write(edge_at(terms, spread_position(position, j)) * H + me.head, j);
        }
    }
}

// What an (E, H) array holds for the j-th edge, 0 for edges that do not exist.
template <bool FULL>
__device__ inline acc_t kept_number(
    const scalar_t* __restrict__ from,
    const EdgeTerms& terms,
    const Lane& me,
    const Unit& unit,
    index_t position,
    int j) {
    if (!keeps_edge<FULL>(unit, position, j) || !owns_head(me)) {
        return NOTHING;
    }
    return edge_number<2>(from, edge_at(terms, spread_position(position, j)), me);
}

// Numbers (N, H) of the edges that this lane keeps, by the ends `cols`.
template <bool FULL, class T>
__device__ inline void load_kept(
    const T* __restrict__ from,
    const index_t (&cols)[U],
    const Lane& me,
    const Unit& unit,
    index_t position,
    acc_t (&numbers)[PER_LANE]) {
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        numbers[j] = NOTHING;
        if (keeps_edge<FULL>(unit, position, j) && owns_head(me)) {
            numbers[j] = load_number(from + head_offset(pick_spread(cols, j), me));
        }
    }
}

// What the pass by destination left for the ends of the edges that this lane keeps (centered_sums.cuh).
struct EndStates {
    acc_t lse[PER_LANE];
    acc_t inverse[PER_LANE];  // negative where the edge is alone in its row
    acc_t delta[PER_LANE];

    // p from a base-2 score less lse.
    __device__ acc_t softmax(int j, acc_t above) const {
        return fast_exp2(above) * magnitude(inverse[j]);
    }

    // What x is above delta.
    __device__ acc_t centered(int j, acc_t x) const {
        return inverse[j] < 0 ? NOTHING : x - delta[j];
    }
};

template <bool FULL>
__device__ inline EndStates load_states(
    const acc_t* __restrict__ lse,        // (N_dst, H)
    const acc_t* __restrict__ row_state,  // (N_dst, H, 2)
    const index_t (&cols)[U],
    const Lane& me,
    const Unit& unit,
    index_t position) {
    EndStates states;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        states.lse[j] = NOTHING;
        states.inverse[j] = NOTHING;
        states.delta[j] = NOTHING;
        if (keeps_edge<FULL>(unit, position, j) && owns_head(me)) {
            const int64_t at = head_offset(pick_spread(cols, j), me);
            states.lse[j] = __ldg(lse + at);
            states.inverse[j] = __ldg(row_state + 2 * at);
            states.delta[j] = __ldg(row_state + 2 * at + 1);
        }
    }
    return states;
}

// Number (N, H) of the row itself.
__device__ inline acc_t number_of_row(
    const scalar_t* __restrict__ from,
    const Unit& unit,
    const Lane& me) {
    const bool any = unit.begin < unit.end && owns_head(me);
    return any ? to_acc(from[head_offset(unit.row, me)]) : NOTHING;
}
