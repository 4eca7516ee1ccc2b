"""What each op must reach on an H200, and what others reach: ratios to the yardstick, float32.

Those of ``dot_attention`` are ratios to two yardsticks, since an edge reads a key and a value.

The figures of the peers were measured on the shared generators with torch 2.11 on one H200. "DGL,
CUDA" is DGL's newest source built for that card, "paper library" the CUDA library that came with
the paper on fused graph attention, with default settings. None stands for out of memory.
"""

from __future__ import annotations

GRAPHS = ("arxiv", "web", "products", "proteins", "road", "tolokers", "pokec", "molecules")

# (op, shape, pass) -> the largest ratio that is acceptable on each graph of GRAPHS.
_TARGETS = {
    ("gatv2", "H=2 D=64", "forward"): (1.3, 1.1, 1.1, 1.3, 1.0, 1.1, 1.0, 0.95),
    ("gatv2", "H=2 D=64", "both"): (5.0, 4.2, 4.9, 6.5, 4.0, 5.0, 4.5, 4.0),
    ("dot_attention", "H=4 D=128", "forward"): (0.9, 0.85, 0.9, 0.95, 0.6, 0.95, 0.85, 0.6),
    ("dot_attention", "H=4 D=128", "both"): (3.2, 3.2, 3.2, 3.6, 2.4, 3.5, 3.2, 2.4),
    ("spmm", "sum W=256", "forward"): (0.85, 0.78, 0.75, 0.7, 0.7, 0.85, 0.78, 0.65),
    ("spmm", "sum W=256", "both"): (1.8, 1.6, 1.5, 1.5, 1.5, 1.8, 1.6, 1.4),
    ("copy_u_min", "W=512", "forward"): (0.98, 0.85, 0.85, 0.88, 0.85, 0.9, 0.85, 0.85),
    ("copy_u_min", "W=512", "both"): (1.9, 1.6, 1.5, 1.0, 2.3, 1.3, 1.6, 2.2),
}

PEERS: dict[tuple[str, str, str], dict[str, tuple[float | None, ...]]] = {
    ("gatv2", "H=2 D=64", "forward"): {
        "DGL, CUDA": (71.0, 125.3, 20.9, 34.0, 12.7, 43.8, 17.8, 7.7),
        "paper library": (9.5, 16.6, 3.2, 3.0, 9.9, 7.9, 3.0, 2.6),
    },
    ("gatv2", "H=2 D=64", "both"): {
        "DGL, CUDA": (112.5, 199.1, 46.0, None, 30.3, 99.6, 38.1, 20.3),
        "paper library": (30.0, 54.0, 13.0, 15.0, 17.0, 31.0, 12.0, 9.1),
    },
    ("dot_attention", "H=4 D=128", "forward"): {
        "DGL, CUDA": (11.4, 17.4, 2.61, 3.5, 2.12, 6.4, 2.34, 1.77),
        "paper library": (2.9, 3.2, 1.24, 0.98, 4.3, 1.6, 1.24, 2.2),
    },
    ("dot_attention", "H=4 D=128", "both"): {
        "DGL, CUDA": (23.5, 34.9, 7.4, 10.1, 6.7, 17.6, 6.6, 5.8),
        "paper library": (8.0, 8.7, 6.8, 8.1, 6.5, 8.3, 5.5, 4.2),
    },
    ("spmm", "sum W=256", "forward"): {
        "DGL, CUDA": (1.10, 0.96, 1.02, 1.04, 0.95, 1.17, 0.94, 0.93),
        "paper library": (0.89, 0.95, 0.95, 0.99, 0.77, 0.97, 0.95, 0.80),
    },
    ("spmm", "sum W=256", "both"): {
        "DGL, CUDA": (2.41, 1.60, 2.02, 2.08, 1.94, 3.5, 1.91, 1.91),
        "paper library": (2.8, 3.2, 3.3, 3.9, 2.2, 3.2, 3.3, 2.1),
    },
    ("copy_u_min", "W=512", "forward"): {
        "DGL, CUDA": (9.1, 12.0, 2.00, 1.56, 3.5, 3.3, 1.94, 3.7),
        "paper library": (1.52, 3.1, 1.25, 1.28, 2.7, 1.36, 1.16, 1.49),
    },
    ("copy_u_min", "W=512", "both"): {
        "DGL, CUDA": (11.5, 13.2, 3.5, 1.65, 6.4, 4.1, 3.7, 6.6),
        "paper library": (2.8, 3.8, 2.3, 1.35, 4.2, 1.7, 2.4, 2.8),
    },
}

# A mean, and a sum with the factors of a GCN, may take this share of the time of a plain sum.
FACTORS_SHARE = 1.05
# GAT may take this share of the time of GATv2, and attention with dropout of that without.
GAT_SHARE = 1.05
DROPOUT_SHARE = 1.1
# A maximum may take this share of the time of a minimum, and the four statistics of PNA, which come
# from one pass over the neighbours, this share of the time of a maximum alone.
MAX_SHARE = 1.05
STATISTICS_SHARE = 1.3

# 16-bit storage must take this share of the float32 time where the features exceed the L2 cache;
# elsewhere it must just not be slower.
HALF_SHARE = 0.6


def target(op: str, shape: str, which: str, graph: str) -> float | None:
    """Look up the largest float32 ratio; None where there is none."""
    figures = _TARGETS.get((op, shape, which))
    return None if figures is None or graph not in GRAPHS else figures[GRAPHS.index(graph)]
