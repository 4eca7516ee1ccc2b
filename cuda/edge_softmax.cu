// edge_softmax.cu: softmax of edge scores over the edges of each row.
//   out[e,h] = exp(score[e,h] - lse[v,h]),  lse[v,h] = log sum_e exp(score[e,h]),  e in row v
//   grad_score[e,h] = out[e,h] * (grad_out[e,h] - sum_e' out[e',h] grad_out[e',h])
// The backward recomputes out from the scores and the row's (maximum, 1 / total), which is exact to the
// last bits of acc_t whatever the storage type.
// A slot of lanes owns a row: HPW heads side by side, S edges at a time. It walks the row twice, once
// for the row's statistic and once to write. A piece of a long row stops after its statistic; merge.cu
// combines the pieces and the *_long kernels write. Rows without edges own no output.
// Prelude: scalar_t, acc_t, index_t, H, D = V = P = K = SLICES = 1, HPW, S, R, U, WARPS, MIN_BLOCKS,
//   PERMUTED (eids given)
#include "common/rows.cuh"

static_assert(D == 1 && V == 1 && P == 1 && K == 1 && SLICES == 1, "a score is one number a head");

struct EdgeIds {
    const index_t* __restrict__ eids;

    __device__ index_t operator()(index_t position) const {
        return PERMUTED ? eids[position] : position;
    }
};

// Call write(offset of (edge, head)) for this lane's edges of the unit.
template <class Write>
__device__ inline void for_each_score(
    const Unit& unit,
    const Lane& me,
    const EdgeIds& edge_id,
    Write write) {
    if (!owns_head(me)) {
        return;
    }
#pragma unroll 4
    for (index_t at = unit.begin + me.edge_slot; at < unit.end; at += S) {
        write(static_cast<int64_t>(edge_id(at)) * H + me.head);
    }
}

// Maximum and 1 / total of one row and head.
struct RowState {
    acc_t top;
    acc_t inverse;
};

__device__ inline RowState load_state(const acc_t* row_state, const Unit& unit, const Lane& me) {
    if (unit.row < 0 || !owns_head(me)) {
        return RowState{0, 0};
    }
    const acc_t* at = row_state + head_offset(unit.row, me) * 2;
    return RowState{at[0], at[1]};
}

// e^(x - top). The difference comes first: scaled before, a large score would lose what tells it from the
// top, and the top itself would not be worth exactly 1.
__device__ inline acc_t power_below(acc_t x, acc_t top) {
    return fast_exp2(LOG2E * (x - top));
}

__device__ inline acc_t softmax_of(scalar_t score, const RowState& state) {
    return power_below(to_acc(score), state.top) * state.inverse;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) edge_softmax_forward(
    const scalar_t* __restrict__ score,        // (E, H), edge-id order
    const index_t* __restrict__ eids,          // (E), position -> edge id
    const index_t* __restrict__ indptr,        // (N + 1)
    const index_t* __restrict__ indices,       // (E), not read
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ out,        // (E, H), edge-id order
    acc_t* __restrict__ row_state,     // (N, H, 2), maximum and 1 / total
    acc_t* __restrict__ part_state) {  // (num_chunks, H, 2), maximum and total
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const EdgeIds edge_id{eids};

    for_each_unit(adj, me, [&](const Unit& unit) {
        acc_t top = minus_infinity();
        acc_t total = 0;
        for_each_group(
            unit, me, edge_id, [&](auto kind, const index_t(&ids)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                acc_t x[U];
                acc_t higher = top;
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    const bool exists = owns_head(me) && (full || position + u * S < unit.end);
                    x[u] = exists ? to_acc(score[static_cast<int64_t>(ids[u]) * H + me.head])
                                  : minus_infinity();
                    higher = largest(higher, x[u]);
                }
                const acc_t base = higher == minus_infinity() ? static_cast<acc_t>(0) : higher;
                total *= power_below(top, base);
                top = higher;
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    total += power_below(x[u], base);
                }
            });
        const acc_t highest = largest_over_slots(top);
        const acc_t base = highest == minus_infinity() ? NOTHING : highest;
        total = sum_over_slots(total * power_below(top, base));
        const bool piece = unit.chunk >= 0;
        const RowState state{base, 1 / total};
        if (unit.row >= 0 && me.edge_slot == 0 && owns_head(me)) {
            acc_t* at = piece ? part_state + head_offset(unit.chunk, me) * 2
                              : row_state + head_offset(unit.row, me) * 2;
            at[0] = piece ? highest : state.top;
            at[1] = piece ? total : state.inverse;
        }
        if (!piece) {
            for_each_score(unit, me, edge_id, [&](int64_t at) {
                from_acc(softmax_of(score[at], state), out[at]);
            });
        }
    });
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) edge_softmax_forward_long(
    const scalar_t* __restrict__ score,        // (E, H), edge-id order
    const acc_t* __restrict__ row_state,       // (N, H, 2)
    const index_t* __restrict__ eids,          // (E), position -> edge id
    const index_t* __restrict__ indptr,        // (N + 1)
    const index_t* __restrict__ indices,       // (E), not read
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ out) {  // (E, H), edge-id order
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const EdgeIds edge_id{eids};
    for_each_unit(adj, me, [&](const Unit& unit) {
        const RowState state = load_state(row_state, unit, me);
        for_each_score(unit, me, edge_id, [&](int64_t at) {
            from_acc(softmax_of(score[at], state), out[at]);
        });
    });
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) edge_softmax_backward(
    const scalar_t* __restrict__ score,        // (E, H), edge-id order
    const scalar_t* __restrict__ grad_out,     // (E, H), edge-id order
    const acc_t* __restrict__ row_state,       // (N, H, 2)
    const index_t* __restrict__ eids,          // (E), position -> edge id
    const index_t* __restrict__ indptr,        // (N + 1)
    const index_t* __restrict__ indices,       // (E), not read
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ grad_score,  // (E, H), edge-id order
    acc_t* __restrict__ part_inner) {   // (num_chunks, H), sum of out * grad_out of each piece
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const EdgeIds edge_id{eids};

    for_each_unit(adj, me, [&](const Unit& unit) {
        const RowState state = load_state(row_state, unit, me);
        acc_t inner = 0;
        for_each_score(unit, me, edge_id, [&](int64_t at) {
            inner += softmax_of(score[at], state) * to_acc(grad_out[at]);
        });
        inner = sum_over_slots(inner);
        if (unit.chunk >= 0) {
            if (me.edge_slot == 0 && owns_head(me)) {
                part_inner[head_offset(unit.chunk, me)] = inner;
            }
            return;
        }
        for_each_score(unit, me, edge_id, [&](int64_t at) {
            from_acc(softmax_of(score[at], state) * (to_acc(grad_out[at]) - inner), grad_score[at]);
        });
    });
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) edge_softmax_backward_long(
    const scalar_t* __restrict__ score,        // (E, H), edge-id order
    const scalar_t* __restrict__ grad_out,     // (E, H), edge-id order
    const acc_t* __restrict__ row_state,       // (N, H, 2)
    const acc_t* __restrict__ inner,           // (N, H), sum of out * grad_out of each long row
    const index_t* __restrict__ eids,          // (E), position -> edge id
    const index_t* __restrict__ indptr,        // (N + 1)
    const index_t* __restrict__ indices,       // (E), not read
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ grad_score) {  // (E, H), edge-id order
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const EdgeIds edge_id{eids};
    for_each_unit(adj, me, [&](const Unit& unit) {
        const RowState state = load_state(row_state, unit, me);
        const acc_t row_inner =
            unit.row >= 0 && owns_head(me) ? inner[head_offset(unit.row, me)] : 0;
        for_each_score(unit, me, edge_id, [&](int64_t at) {
            from_acc(
                softmax_of(score[at], state) * (to_acc(grad_out[at]) - row_inner), grad_score[at]);
        });
    });
}
