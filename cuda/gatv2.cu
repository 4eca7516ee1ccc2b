// gatv2.cu: GATv2 attention (Brody, Alon, Yahav 2022), forward and backward, without edge-sized memory.
//   z[e,h,d]   = feat_src[u,h,d] + feat_dst[v,h,d],  e = (u -> v)
//   score[e,h] = sum_d attn[h,d] * leaky_relu(z[e,h,d])
//   out[v,h,:] = sum_e softmax_e(score[e,h]) * feat_src[u,h,:]
// Lanes own elements as in lanes.cuh; a slot of lanes owns a row and walks its edges once.
//
// Numerics. leaky_relu(z) = c1 z + c2 |z| with c1 = (1 + slope) / 2, c2 = (1 - slope) / 2. The part
// c1 attn.feat_dst[v] is the same for all edges of a row and cancels in the softmax, so scores here are
//   s[e,h] = log2(e) * (c1 attn.feat_src[u] + c2 sum_d attn[h,d] |z[e,h,d]|),
// and lse is the base-2 log-sum-exp of these. The softmax is online: a running maximum per edge slot.
//
// Gradients. With ds = p (grad_out[v].feat_src[u] - delta[v]), delta[v] = grad_out[v].out[v], and
// t[e,h,d] = ds leaky_relu'(z) = ds (slope + (1 - slope) [z > 0]):
//   grad_dst[v] = attn * sum_e t            (by destination)
//   grad_src[u] = attn * sum_e t + sum_e p grad_out[v]      (by source)
//   grad_attn   = sum_v feat_dst[v] * sum_e t + sum_u feat_src[u] * sum_e t
// The last line needs no work per edge: both sums over t are at hand when a row ends.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, SLICES (1), WARPS, MIN_BLOCKS
#include "common/rows.cuh"

static_assert(SLICES == 1, "a score needs the whole head");

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

// Running softmax state of one edge slot: maximum, sum of exponentials, weighted sum of rows.
struct SoftmaxState {
    acc_t top;
    acc_t total;
    acc_t sum[K][V];
};

// Bring the states of all edge slots of a row together; afterwards sum[] is shared out among slots.
__device__ inline void merge_slots(const Lane& me, SoftmaxState& state) {
    if constexpr (S > 1) {
        const acc_t top = largest_over_slots(state.top);
        const acc_t scale = state.top == minus_infinity() ? NOTHING : fast_exp2(state.top - top);
        state.top = top;
        state.total = sum_over_slots(state.total * scale);
#pragma unroll
        for (int k = 0; k < K; ++k) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                state.sum[k][v] *= scale;
            }
        }
        scatter_over_slots<0, K>(me, state.sum);
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gatv2_forward(
    const scalar_t* __restrict__ feat_src,     // (N_src, H, D)
    const scalar_t* __restrict__ feat_dst,     // (N_dst, H, D)
    const scalar_t* __restrict__ attn,         // (H, D)
    const acc_t negative_slope,
    const index_t* __restrict__ indptr,        // (N_dst + 1)
    const index_t* __restrict__ indices,       // (E), source of each position
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ out,        // (N_dst, H, D)
    acc_t* __restrict__ lse,           // (N_dst, H), base 2
    acc_t* __restrict__ part_sum,      // (num_chunks, H, D), sums relative to the piece's maximum
    acc_t* __restrict__ part_state) {  // (num_chunks, H, 2), maximum and total of each piece
    const Adjacency adj{indptr, indices, chunk_rows, chunk_begins, num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const acc_t c1 = LOG2E * (1 + negative_slope) / 2;
    const acc_t c2 = LOG2E * (1 - negative_slope) / 2;
    acc_t weight[K][V];
    load_row(attn, 0, me, true, weight);

    for_each_unit(adj, me, [&](const Unit& unit) {
        SoftmaxState state;
        state.top = minus_infinity();
        state.total = NOTHING;
        clear(state.sum);
        acc_t target[K][V];
        load_row(feat_dst, unit.row, me, unit.begin < unit.end, target);

        const auto fetch = [&](index_t position) { return indices[position]; };
        for_each_group(unit, me, fetch, [&](auto kind, const index_t(&cols)[U], index_t position, int live) {
            constexpr bool full = decltype(kind)::value;
            packet_t rows[U][K];
#pragma unroll
            for (int u = 0; u < U; ++u) {
                load_row(feat_src, cols[u], me, full || position + u * S < unit.end, rows[u]);
            }
            acc_t score[U];
#pragma unroll
            for (int u = 0; u < U; ++u) {
                acc_t linear = NOTHING;
                acc_t folded = NOTHING;
                if (full || u < live) {
#pragma unroll
                    for (int k = 0; k < K; ++k) {
#pragma unroll
                        for (int v = 0; v < V; ++v) {
                            const acc_t x = element(rows[u][k], v);
                            linear += weight[k][v] * x;
                            folded += weight[k][v] * magnitude(x + target[k][v]);
                        }
                    }
                }
                score[u] = c1 * linear + c2 * folded;
            }
            acc_t top = state.top;
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (full || u < live) {
                    score[u] = sum_over_head(score[u]);
                }
                if (!full && position + u * S >= unit.end) {
                    score[u] = minus_infinity();
                }
                top = largest(top, score[u]);
            }
            // A slot that has seen no edge yet has no maximum: any finite one will do.
            const acc_t base = top == minus_infinity() ? NOTHING : top;
            const acc_t scale = fast_exp2(state.top - base);
            state.top = top;
            state.total *= scale;
#pragma unroll
            for (int k = 0; k < K; ++k) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    state.sum[k][v] *= scale;
                }
            }
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (full || u < live) {
                    const acc_t p = fast_exp2(score[u] - base);
                    state.total += p;
#pragma unroll
                    for (int k = 0; k < K; ++k) {
#pragma unroll
                        for (int v = 0; v < V; ++v) {
                            state.sum[k][v] += p * element(rows[u][k], v);
                        }
                    }
                }
            }
        });

        merge_slots(me, state);
        if (unit.row < 0 || !is_writer(me)) {
            return;
        }
        const bool whole = unit.chunk < 0;
        const acc_t inverse = whole && unit.begin < unit.end ? 1 / state.total : static_cast<acc_t>(1);
        const int64_t place = (whole ? unit.row : unit.chunk) * (H * D) + me.offset;
        const int first = first_owned(me);
#pragma unroll
        for (int k = 0; k < OWNED; ++k) {
            if (!owns(me, first + k)) {
                continue;
            }
            const int64_t at = place + (first + k) * P * V;
            if (whole) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    state.sum[k][v] *= inverse;
                }
                store_packet(out + at, state.sum[k]);
            } else {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    part_sum[at + v] = state.sum[k][v];
                }
            }
        }
        if (me.element == 0 && me.edge_slot == 0 && owns_head(me)) {
            if (whole) {
                lse[unit.row * H + me.head] =
                    unit.begin < unit.end ? state.top + log2(state.total) : NOTHING;
            } else {
                acc_t* at = part_state + (unit.chunk * H + me.head) * 2;
                at[0] = state.top;
                at[1] = state.total;
            }
        }
    });
}

// Sum the lanes' shares of grad_attn over the block in a fixed order: one row of partials a block.
__device__ inline void store_attn_share(const Lane& me, const acc_t (&share)[K][V], acc_t* part_attn) {
    __shared__ acc_t shares[WARPS][32][K * V];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
            shares[warp][lane][k * V + v] = share[k][v];
        }
    }
    __syncthreads();
    // Threads below ROW_LANES stand for the lanes of one edge slot; the others of each warp hold the
    // same elements and are added in.
    for (int i = threadIdx.x; i < ROW_LANES * K * V; i += WARPS * 32) {
        const int owner = i / (K * V);
        const int entry = i % (K * V);
        acc_t total = NOTHING;
        for (int w = 0; w < WARPS; ++w) {
            for (int copy = owner; copy < 32; copy += ROW_LANES) {
                total += shares[w][copy][entry];
            }
        }
        const int head = static_cast<int>(blockIdx.y) * HPW + owner / P;
        const int d = (entry / V * P + owner % P) * V + entry % V;
        if (head < H && d < D) {
            part_attn[static_cast<int64_t>(blockIdx.x) * (H * D) + head * D + d] = total;
        }
    }
}

// Write the owned vectors of a finished row, or of a piece of one.
__device__ inline void store_grad(const Lane& me, const Unit& unit, const acc_t (&grad)[K][V], scalar_t* out,
                                  acc_t* part) {
    if (unit.row < 0 || !is_writer(me)) {
        return;
    }
    const bool whole = unit.chunk < 0;
    const int first = first_owned(me);
    const int64_t place = (whole ? unit.row : unit.chunk) * (H * D) + me.offset;
#pragma unroll
    for (int k = 0; k < OWNED; ++k) {
        if (!owns(me, first + k)) {
            continue;
        }
        const int64_t at = place + (first + k) * P * V;
        if (whole) {
            store_packet(out + at, grad[k]);
        } else {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                part[at + v] = grad[k][v];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gatv2_backward_dst(
    const scalar_t* __restrict__ feat_src,     // (N_src, H, D)
    const scalar_t* __restrict__ feat_dst,     // (N_dst, H, D)
    const scalar_t* __restrict__ attn,         // (H, D)
    const scalar_t* __restrict__ out,          // (N_dst, H, D)
    const scalar_t* __restrict__ grad_out,     // (N_dst, H, D)
    const acc_t* __restrict__ lse,             // (N_dst, H), base 2
    const acc_t negative_slope,
    const index_t* __restrict__ indptr,        // (N_dst + 1)
    const index_t* __restrict__ indices,       // (E), source of each position
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ grad_dst,  // (N_dst, H, D)
    acc_t* __restrict__ row_state,    // (N_dst, H, 2): lse and delta, for the pass by source
    acc_t* __restrict__ part_grad,    // (num_chunks, H, D)
    acc_t* __restrict__ part_attn) {  // (gridDim.x, H, D)
    const Adjacency adj{indptr, indices, chunk_rows, chunk_begins, num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const acc_t c1 = LOG2E * (1 + negative_slope) / 2;
    const acc_t c2 = LOG2E * (1 - negative_slope) / 2;
    acc_t weight[K][V];
    load_row(attn, 0, me, true, weight);
    acc_t attn_share[K][V];
    clear(attn_share);

    for_each_unit(adj, me, [&](const Unit& unit) {
        const bool any = unit.begin < unit.end;
        // With z > 0 <=> feat_src > -feat_dst the sign test needs no sum.
        acc_t target[K][V];
        acc_t grad[K][V];
        load_row(feat_dst, unit.row, me, any, target);
        load_row(grad_out, unit.row, me, any, grad);
        acc_t delta = NOTHING;
        {
            acc_t result[K][V];
            load_row(out, unit.row, me, any, result);
#pragma unroll
            for (int k = 0; k < K; ++k) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    delta += grad[k][v] * result[k][v];
                }
            }
        }
        delta = sum_over_head(delta);
        const acc_t row_lse = any && owns_head(me) ? lse[unit.row * H + me.head] : NOTHING;

        acc_t sum_ds = NOTHING;
        acc_t positive[K][V];  // sum of ds over edges with z > 0
        clear(positive);
        const auto fetch = [&](index_t position) { return indices[position]; };
        for_each_group(unit, me, fetch, [&](auto kind, const index_t(&cols)[U], index_t position, int live) {
            constexpr bool full = decltype(kind)::value;
            packet_t rows[U][K];
#pragma unroll
            for (int u = 0; u < U; ++u) {
                load_row(feat_src, cols[u], me, full || position + u * S < unit.end, rows[u]);
            }
            acc_t score[U];
            acc_t inner[U];
#pragma unroll
            for (int u = 0; u < U; ++u) {
                acc_t linear = NOTHING;
                acc_t folded = NOTHING;
                inner[u] = NOTHING;
                if (full || u < live) {
#pragma unroll
                    for (int k = 0; k < K; ++k) {
#pragma unroll
                        for (int v = 0; v < V; ++v) {
                            const acc_t x = element(rows[u][k], v);
                            linear += weight[k][v] * x;
                            folded += weight[k][v] * magnitude(x + target[k][v]);
                            inner[u] += grad[k][v] * x;
                        }
                    }
                }
                score[u] = c1 * linear + c2 * folded;
            }
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (full || u < live) {
                    score[u] = sum_over_head(score[u]);
                    inner[u] = sum_over_head(inner[u]);
                }
            }
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (full || u < live) {
                    const bool exists = full || position + u * S < unit.end;
                    const acc_t p = exists ? fast_exp2(score[u] - row_lse) : NOTHING;
                    const acc_t ds = p * (inner[u] - delta);
                    sum_ds += ds;
#pragma unroll
                    for (int k = 0; k < K; ++k) {
#pragma unroll
                        for (int v = 0; v < V; ++v) {
                            if (element(rows[u][k], v) > -target[k][v]) {
                                positive[k][v] += ds;
                            }
                        }
                    }
                }
            }
        });

#pragma unroll
        for (int k = 0; k < K; ++k) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                const acc_t t = negative_slope * sum_ds + (1 - negative_slope) * positive[k][v];
                attn_share[k][v] += target[k][v] * t;
                positive[k][v] = weight[k][v] * t;
            }
        }
        scatter_over_slots<0, K>(me, positive);
        store_grad(me, unit, positive, grad_dst, part_grad);
        const bool first_piece = unit.chunk < 0 || (unit.row >= 0 && unit.begin == indptr[unit.row]);
        if (any && first_piece && me.element == 0 && me.edge_slot == 0 && owns_head(me)) {
            acc_t* at = row_state + (unit.row * H + me.head) * 2;
            at[0] = row_lse;
            at[1] = delta;
        }
    });
    store_attn_share(me, attn_share, part_attn);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) gatv2_backward_src(
    const scalar_t* __restrict__ feat_src,     // (N_src, H, D)
    const scalar_t* __restrict__ feat_dst,     // (N_dst, H, D)
    const scalar_t* __restrict__ attn,         // (H, D)
    const scalar_t* __restrict__ grad_out,     // (N_dst, H, D)
    const acc_t* __restrict__ row_state,       // (N_dst, H, 2): lse and delta
    const acc_t negative_slope,
    const index_t* __restrict__ indptr,        // (N_src + 1), of the reverse adjacency
    const index_t* __restrict__ indices,       // (E), destination of each position
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ grad_src,  // (N_src, H, D)
    acc_t* __restrict__ part_grad,    // (num_chunks, H, D)
    acc_t* __restrict__ part_attn) {  // (gridDim.x, H, D)
    const Adjacency adj{indptr, indices, chunk_rows, chunk_begins, num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const acc_t c1 = LOG2E * (1 + negative_slope) / 2;
    const acc_t c2 = LOG2E * (1 - negative_slope) / 2;
    acc_t weight[K][V];
    load_row(attn, 0, me, true, weight);
    acc_t attn_share[K][V];
    clear(attn_share);

    for_each_unit(adj, me, [&](const Unit& unit) {
        acc_t source[K][V];
        load_row(feat_src, unit.row, me, unit.begin < unit.end, source);
        acc_t linear = NOTHING;
#pragma unroll
        for (int k = 0; k < K; ++k) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                linear += weight[k][v] * source[k][v];
            }
        }
        linear = c1 * sum_over_head(linear);

        acc_t sum_ds = NOTHING;
        acc_t positive[K][V];  // sum of ds over edges with z > 0
        acc_t value[K][V];     // sum of p * grad_out
        clear(positive);
        clear(value);
        const auto fetch = [&](index_t position) { return indices[position]; };
        for_each_group(unit, me, fetch, [&](auto kind, const index_t(&cols)[U], index_t position, int live) {
            constexpr bool full = decltype(kind)::value;
            packet_t targets[U][K];
            packet_t grads[U][K];
            acc_t row_lse[U];
            acc_t delta[U];
#pragma unroll
            for (int u = 0; u < U; ++u) {
                const bool exists = full || position + u * S < unit.end;
                load_row(feat_dst, cols[u], me, exists, targets[u]);
                load_row(grad_out, cols[u], me, exists, grads[u]);
                row_lse[u] = NOTHING;
                delta[u] = NOTHING;
                if (exists && owns_head(me)) {
                    const acc_t* at = row_state + (static_cast<int64_t>(cols[u]) * H + me.head) * 2;
                    row_lse[u] = __ldg(at);
                    delta[u] = __ldg(at + 1);
                }
            }
            acc_t score[U];
            acc_t inner[U];
#pragma unroll
            for (int u = 0; u < U; ++u) {
                score[u] = NOTHING;
                inner[u] = NOTHING;
                if (full || u < live) {
#pragma unroll
                    for (int k = 0; k < K; ++k) {
#pragma unroll
                        for (int v = 0; v < V; ++v) {
                            score[u] += weight[k][v] * magnitude(element(targets[u][k], v) + source[k][v]);
                            inner[u] += element(grads[u][k], v) * source[k][v];
                        }
                    }
                }
            }
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (full || u < live) {
                    score[u] = sum_over_head(score[u]);
                    inner[u] = sum_over_head(inner[u]);
                }
            }
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (full || u < live) {
                    const bool exists = full || position + u * S < unit.end;
                    const acc_t p =
                        exists ? fast_exp2(linear + c2 * score[u] - row_lse[u]) : NOTHING;
                    const acc_t ds = p * (inner[u] - delta[u]);
                    sum_ds += ds;
#pragma unroll
                    for (int k = 0; k < K; ++k) {
#pragma unroll
                        for (int v = 0; v < V; ++v) {
                            value[k][v] += p * element(grads[u][k], v);
                            if (element(targets[u][k], v) > -source[k][v]) {
                                positive[k][v] += ds;
                            }
                        }
                    }
                }
            }
        });

#pragma unroll
        for (int k = 0; k < K; ++k) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                const acc_t t = negative_slope * sum_ds + (1 - negative_slope) * positive[k][v];
                attn_share[k][v] += source[k][v] * t;
                value[k][v] += weight[k][v] * t;
            }
        }
        scatter_over_slots<0, K>(me, value);
        store_grad(me, unit, value, grad_src, part_grad);
    });
    store_attn_share(me, attn_share, part_attn);
}
