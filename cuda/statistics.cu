// statistics.cu: several statistics of a row's edges from one gather.
//   mean[v,c] = sum_e x[e,c] / n,   spread[v,c] = sum_e (x[e,c] - mean[v,c])^2 / n or its root (ROOT),
//   most[v,c] = max_e x[e,c],   least[v,c] = min_e x[e,c],   n the edges of row v, x[e] = feat[u] or feat[e]
// moments.cuh says how spreads are found, contest.cuh who wins; rows without edges and infinite extremes are 0. The sum is
// told too if wanted, and mean and spread in the arithmetic type, which the gradients need.
//   statistics_prepare: straight[v,c] and sloped[v,c], so that d loss / d x[e] = straight + sloped x of mean, sum
//     and spread together
//   statistics_backward: grad_feat[u,c] = sum_v straight[v,c] + x[u,c] sloped[v,c] + what the edge has won, on
//     the reverse adjacency; statistics_edges: the same to rows of edges
// A slot of lanes owns a row, or a piece of a long one that merge.cu puts together. Heads do not matter: H = 1.
// Prelude: scalar_t, acc_t, index_t, H, D, V, P, HPW, K, S, R, U, AHEAD, SLICES, LOOPS, WARPS,
//   MIN_BLOCKS, WINNER_BYTES, MEAN, TOTAL and DEVIATION (need MEAN), ROOT, MOST, LEAST, EDGE_ROWS, PERMUTED
#include "common/moments.cuh"
#include "common/prizes.cuh"

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) statistics(
    const scalar_t* __restrict__ feat,         // (N_src, H, D), or (E, H, D) in edge-id order
    const index_t* __restrict__ eids,          // (E), position -> edge id
    const index_t* __restrict__ indptr,        // (N_dst + 1)
    const index_t* __restrict__ indices,       // (E), source of each position
    const index_t* __restrict__ chunk_rows,    // (num_chunks)
    const index_t* __restrict__ chunk_begins,  // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ mean,            // (N_dst, H, D)
    scalar_t* __restrict__ total,           // (N_dst, H, D) or null
    scalar_t* __restrict__ spread,          // (N_dst, H, D)
    acc_t* __restrict__ exact_mean,         // (N_dst, H, D) or null
    acc_t* __restrict__ exact_spread,       // (N_dst, H, D) or null
    scalar_t* __restrict__ most,            // (N_dst, H, D)
    scalar_t* __restrict__ least,           // (N_dst, H, D)
    uint8_t* __restrict__ most_winners,     // (WINNER_BYTES, N_dst, H, D)
    uint8_t* __restrict__ least_winners,    // (WINNER_BYTES, N_dst, H, D)
    acc_t* __restrict__ part_total,         // (num_chunks, H, D)
    acc_t* __restrict__ part_mean,          // (num_chunks, H, D)
    acc_t* __restrict__ part_squares,       // (num_chunks, H, D), about it
    acc_t* __restrict__ part_most,          // (num_chunks, H, D)
    acc_t* __restrict__ part_least,         // (num_chunks, H, D)
    uint32_t* __restrict__ most_places,     // (num_chunks, H, D)
    uint32_t* __restrict__ least_places) {  // (num_chunks, H, D)
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const auto fetch = [&](index_t position) {
        return !EDGE_ROWS ? indices[position] : PERMUTED ? eids[position] : position;
    };

    for_each_unit(adj, me, [&](const Unit& unit) {
        typename select<COMPARE_PAIRS, PairWinners<true>, Winners<true>>::type highest;
        typename select<COMPARE_PAIRS, PairWinners<false>, Winners<false>>::type lowest;
        acc_t added[K][V];
        Moments moments[K][V];
        acc_t seen = 0;  // edges of this slot so far
        clear(highest);
        clear(lowest);
        clear(added);
        for_each_element([&](int k, int v) { moments[k][v] = Moments{0, 0}; });
        const auto load = [&](auto kind, const index_t(&ids)[U], index_t position) {
            return gather<decltype(kind)::value>(feat, ids, me, unit, position);
        };
        for_each_gathered(
            unit, me, fetch, load,
            [&](auto kind, const Gathered& sources, index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                if (DEVIATION && full) {
                    const Step step = step_of(seen, U);
                    seen += U;
                    for_each_element([&](int k, int v) {
                        acc_t x[U];
#pragma unroll
                        for (int u = 0; u < U; ++u) {
                            x[u] = element(sources.rows[u][k], v);
                        }
                        added[k][v] += add_values(moments[k][v], x, step);
                    });
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    if (!full && u >= live) {
                        continue;
                    }
                    const bool exists = full || position + u * S < unit.end;
                    const uint32_t place = static_cast<uint32_t>(position + u * S - unit.begin);
                    if (MEAN && !(DEVIATION && full)) {
                        const Step step = exists ? step_of(seen, 1) : NO_STEP;
                        seen += exists;
                        for_each_element([&](int k, int v) {
                            // 0 where there is no edge
                            const acc_t x[1] = {element(sources.rows[u][k], v)};
                            added[k][v] += DEVIATION ? add_values(moments[k][v], x, step) : x[0];
                        });
                    }
                    if (MOST) {
                        consider(highest, sources.rows[u], place, exists);
                    }
                    if (LEAST) {
                        consider(lowest, sources.rows[u], place, exists);
                    }
                }
            });

        // All slots about the mean of the first one, which has edges if any has.
        acc_t centre[K][V];
        acc_t sum[K][V];
        acc_t squares[K][V];
        if (DEVIATION) {
            for_each_element([&](int k, int v) {
                centre[k][v] = from_first_slot(me, moments[k][v].mean);
                const Sums sums = about(moments[k][v], seen, centre[k][v]);
                sum[k][v] = sums.sum;
                squares[k][v] = sums.squares;
            });
            scatter_over_slots<0, K>(me, sum);
            scatter_over_slots<0, K>(me, squares);
            keep_owned<0, K>(me, centre);
        }
        scatter_over_slots<0, K>(me, added);
        Winners<true> largest_found = spelled_out(highest);
        Winners<false> smallest_found = spelled_out(lowest);
        settle_slots(me, largest_found);
        settle_slots(me, smallest_found);
        if (unit.row < 0) {
            return;
        }
        const acc_t n = static_cast<acc_t>(unit.begin < unit.end ? unit.end - unit.begin : 1);
        acc_t(&average)[K][V] = sum;
        acc_t(&width)[K][V] = squares;
#pragma unroll
        for (int k = 0; k < OWNED; ++k) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                const bool piece = unit.chunk >= 0;
                Moments all{};
                if (DEVIATION) {
                    all = moments_of(Sums{sum[k][v], squares[k][v]}, n, centre[k][v]);
                }
                average[k][v] = piece ? all.mean : added[k][v] / n;
                width[k][v] = piece ? all.squares : spread_of(all, n, ROOT);
            }
        }
        if (unit.chunk >= 0) {
            const uint32_t before = static_cast<uint32_t>(unit.begin - indptr[unit.row]);
            if (MEAN) {
                store_piece(me, unit.chunk, added, part_total);
            }
            if (DEVIATION) {
                store_piece(me, unit.chunk, average, part_mean);
                store_piece(me, unit.chunk, width, part_squares);
            }
            if (MOST) {
                store_piece_winners(me, unit.chunk, before, largest_found, part_most, most_places);
            }
            if (LEAST) {
                store_piece_winners(
                    me, unit.chunk, before, smallest_found, part_least, least_places);
            }
            return;
        }
        if (MOST) {
            store_winners(me, unit.row, num_rows, largest_found, most, most_winners);
        }
        if (LEAST) {
            store_winners(me, unit.row, num_rows, smallest_found, least, least_winners);
        }
        if (TOTAL) {
            store_row(me, unit.row, added, total);
        }
        if (MEAN) {
            store_row(me, unit.row, average, mean);
        }
        if (DEVIATION) {
            store_row(me, unit.row, width, spread);
        }
        if (DEVIATION && exact_mean != nullptr) {
            store_piece(me, unit.row, average, exact_mean);
            store_piece(me, unit.row, width, exact_spread);
        }
    });
}

extern "C" __global__ void statistics_prepare(
    const scalar_t* __restrict__ grad_mean,    // (N_dst, H, D) or null
    const scalar_t* __restrict__ grad_spread,  // (N_dst, H, D) or null
    const scalar_t* __restrict__ grad_total,   // (N_dst, H, D) or null
    const acc_t* __restrict__ mean,            // (N_dst, H, D)
    const acc_t* __restrict__ spread,          // (N_dst, H, D)
    const index_t* __restrict__ indptr,        // (N_dst + 1)
    const int64_t num_rows,
    // outputs
    acc_t* __restrict__ straight,  // (N_dst, H, D)
    acc_t* __restrict__ sloped) {  // (N_dst, H, D), with DEVIATION
    const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= num_rows * (H * D)) {
        return;
    }
    const int64_t row = at / (H * D);
    const index_t length = indptr[row + 1] - indptr[row];
    const acc_t n = static_cast<acc_t>(length > 0 ? length : 1);
    acc_t constant = grad_mean == nullptr ? NOTHING : to_acc(grad_mean[at]) / n;
    constant += grad_total == nullptr ? NOTHING : to_acc(grad_total[at]);
    if (DEVIATION) {
        const acc_t found = spread[at];
        const acc_t grad = grad_spread == nullptr ? NOTHING : to_acc(grad_spread[at]);
        // The root has no derivative at 0, where the spread has none but 0.
        const acc_t slope = found == 0 ? NOTHING : ROOT ? grad / (found * n) : 2 * grad / n;
        constant -= slope * mean[at];
        sloped[at] = slope;
    }
    straight[at] = constant;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) statistics_backward(
    const scalar_t* __restrict__ feat,          // (N_src, H, D)
    const acc_t* __restrict__ straight,         // (N_dst, H, D)
    const acc_t* __restrict__ sloped,           // (N_dst, H, D)
    const scalar_t* __restrict__ grad_most,     // (N_dst, H, D)
    const scalar_t* __restrict__ grad_least,    // (N_dst, H, D)
    const uint8_t* __restrict__ most_winners,   // (WINNER_BYTES, N_dst, H, D)
    const uint8_t* __restrict__ least_winners,  // (WINNER_BYTES, N_dst, H, D)
    const index_t* __restrict__ places,         // (E), of each position in the row of its column
    const int64_t num_cols,                     // N_dst
    const index_t* __restrict__ indptr,         // (N_src + 1)
    const index_t* __restrict__ indices,        // (E), destination of each position
    const index_t* __restrict__ chunk_rows,     // (num_chunks)
    const index_t* __restrict__ chunk_begins,   // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ grad_feat,  // (N_src, H, D)
    acc_t* __restrict__ part_sum) {    // (num_chunks, H, D)
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const Prizes for_most{grad_most, most_winners, num_cols * (H * D)};
    const Prizes for_least{grad_least, least_winners, num_cols * (H * D)};
    const auto fetch = [&](index_t position) { return indices[position]; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        acc_t sum[K][V];
        acc_t slope[K][V];
        clear(sum);
        clear(slope);
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&ids)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                if (MEAN) {
                    add_rows<full>(straight, ids, me, unit, position, live, sum);
                }
                if (DEVIATION) {
                    add_rows<full>(sloped, ids, me, unit, position, live, slope);
                }
                Place edges[U];
                if (MOST || LEAST) {
                    read_places<full>(places, unit, position, edges);
                }
                if (MOST) {
                    add_prizes<full>(for_most, edges, ids, me, unit, position, live, sum);
                }
                if (LEAST) {
                    add_prizes<full>(for_least, edges, ids, me, unit, position, live, sum);
                }
            });
        if (DEVIATION) {
            acc_t x[K][V];
            load_row(feat, unit.row, me, unit.begin < unit.end, x);
            for_each_element([&](int k, int v) { sum[k][v] += x[k][v] * slope[k][v]; });
        }
        scatter_over_slots<0, K>(me, sum);
        if (unit.row < 0) {
            return;
        }
        if (unit.chunk < 0) {
            store_row(me, unit.row, sum, grad_feat);
        } else {
            store_piece(me, unit.chunk, sum, part_sum);
        }
    });
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) statistics_edges(
    const scalar_t* __restrict__ feat,          // (E, H, D), edge-id order
    const acc_t* __restrict__ straight,         // (N_dst, H, D)
    const acc_t* __restrict__ sloped,           // (N_dst, H, D)
    const scalar_t* __restrict__ grad_most,     // (N_dst, H, D)
    const scalar_t* __restrict__ grad_least,    // (N_dst, H, D)
    const uint8_t* __restrict__ most_winners,   // (WINNER_BYTES, N_dst, H, D)
    const uint8_t* __restrict__ least_winners,  // (WINNER_BYTES, N_dst, H, D)
    const index_t* __restrict__ eids,           // (E), position -> edge id
    const index_t* __restrict__ indptr,         // (N_dst + 1)
    const index_t* __restrict__ indices,        // (E), source of each position
    const index_t* __restrict__ chunk_rows,     // (num_chunks)
    const index_t* __restrict__ chunk_begins,   // (num_chunks)
    const int64_t num_rows,
    const int64_t num_chunks,
    const int64_t chunk_size,
    const int64_t rows_per_slot,
    // outputs
    scalar_t* __restrict__ grad_feat) {  // (E, H, D), edge-id order
    const Adjacency adj{indptr,   indices,    chunk_rows, chunk_begins,
                        num_rows, num_chunks, chunk_size, rows_per_slot};
    const Lane me = this_lane();
    const auto fetch = [&](index_t position) { return PERMUTED ? eids[position] : position; };

    for_each_unit(adj, me, [&](const Unit& unit) {
        const index_t row_begin = unit.row < 0 ? 0 : indptr[unit.row];
        const bool has_edges = unit.begin < unit.end;
        acc_t constant[K][V];
        acc_t slope[K][V];
        acc_t for_most[K][V];
        acc_t for_least[K][V];
        uint32_t most_place[K][V];
        uint32_t least_place[K][V];
        load_numbers(straight, unit.row, me, MEAN && has_edges, constant);
        load_numbers(sloped, unit.row, me, DEVIATION && has_edges, slope);
        load_row(grad_most, unit.row, me, MOST && has_edges, for_most);
        load_row(grad_least, unit.row, me, LEAST && has_edges, for_least);
        load_places(most_winners, num_rows, unit.row, me, MOST && has_edges, most_place);
        load_places(least_winners, num_rows, unit.row, me, LEAST && has_edges, least_place);
        for_each_group(
            unit, me, fetch, [&](auto kind, const index_t(&ids)[U], index_t position, int live) {
                constexpr bool full = decltype(kind)::value;
                Gathered rows{};
                if (DEVIATION) {
                    rows = gather<full>(feat, ids, me, unit, position);
                }
#pragma unroll
                for (int u = 0; u < U; ++u) {
                    const index_t at = position + u * S;
                    if (!full && at >= unit.end) {
                        continue;
                    }
                    const uint32_t mine = static_cast<uint32_t>(at - row_begin);
#pragma unroll
                    for (int k = 0; k < K; ++k) {
                        acc_t grad[V];
#pragma unroll
                        for (int v = 0; v < V; ++v) {
                            grad[v] = constant[k][v] + slope[k][v] * element(rows.rows[u][k], v);
                            grad[v] += most_place[k][v] == mine ? for_most[k][v] : NOTHING;
                            grad[v] += least_place[k][v] == mine ? for_least[k][v] : NOTHING;
                        }
                        if (owns(me, k)) {
                            const int64_t edge = ids[u];
                            store_packet(grad_feat + edge * (H * D) + me.offset + k * P * V, grad);
                        }
                    }
                }
            });
    });
}
