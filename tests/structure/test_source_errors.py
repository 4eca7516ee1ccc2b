"""Bad input to dgl_flash.graph: expected, got, remedy; and the next good call works."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import dgl_flash

OK = ([0, 1], [1, 2])
CSC = ([0, 1, 2, 3], [1, 2, 0], [])

Case = tuple[Any, dict[str, Any], type[Exception], str]

CASES: dict[str, Case] = {
    "id too large": (
        ([0, 1, 0, 7], [1, 2, 0, 0]),
        {"num_nodes": 5},
        ValueError,
        r"graph: expected `src` ids in \[0, 5\), got 7 at position 3; pass num_nodes=8 or",
    ),
    "destination too large": (OK, {"num_nodes": 2}, ValueError, r"`dst` ids in \[0, 2\), got 2"),
    "negative id": (([0, -1], [1, 2]), {}, ValueError, r"got -1 at position 1; node ids start at"),
    "only negative ids": (([-3], [-2]), {}, ValueError, r"`src` ids in \[0, 0\), got -3"),
    "source beyond its side": (
        ([3], [0]),
        {"num_src_nodes": 3, "num_dst_nodes": 4},
        ValueError,
        r"`src` ids in \[0, 3\), got 3 at position 0; pass num_src_nodes=4",
    ),
    "destination beyond its side": (
        ([0], [3]),
        {"num_src_nodes": 4, "num_dst_nodes": 3},
        ValueError,
        r"`dst` ids in \[0, 3\).*pass num_dst_nodes=4",
    ),
    "PyG num_nodes too small": (
        SimpleNamespace(edge_index=torch.tensor(OK), num_nodes=2),
        {},
        ValueError,
        r"`dst` ids in \[0, 2\)",
    ),
    "lengths differ": (([0, 1], [1]), {}, ValueError, r"of one length, got 2 and 1"),
    "devices differ": (
        (torch.tensor([0]), torch.tensor([0], device="meta")),
        {},
        ValueError,
        r"on one device, got cpu and meta",
    ),
    "float ids": (
        (torch.tensor([0.0]), torch.tensor([1])),
        {},
        TypeError,
        r"`src` of an integer dtype, got torch.float32; pass src.long\(\)",
    ),
    "float lists": (([0], [1.5]), {}, TypeError, r"`dst` of an integer dtype, got torch.float64"),
    "float edge_index": (torch.ones(2, 3), {}, TypeError, r"of an integer dtype"),
    "empty float tensor": (
        (torch.zeros(0), torch.zeros(0)),
        {},
        TypeError,
        r"of an integer dtype",
    ),
    "bool ids": ((np.array([True]), np.array([False])), {}, TypeError, r"got torch.bool"),
    "text ids": ((["a"], ["b"]), {}, TypeError, r"`src` as integers, got list \['a'\]"),
    "ragged ids": (([0, [1]], [0, 1]), {}, TypeError, r"`src` as integers"),
    "2-D ids": (([[0, 1]], [[1, 2]]), {}, ValueError, r"`src` of shape \(E,\), got \(1, 2\)"),
    "scalar ids": ((0, 1), {}, ValueError, r"`src` of shape \(E,\), got \(\)"),
    "edge_index on its side": (
        torch.zeros(5, 2, dtype=torch.int64),
        {},
        ValueError,
        r"`data` of shape \(2, E\), got \(5, 2\); row 0 holds the sources",
    ),
    "edge list": ([(0, 1), (1, 2)], {}, TypeError, r"expected a tuple \(src, dst\).*got list"),
    "nothing": (None, {}, TypeError, r"got NoneType"),
    "a triple": (([0], [1], [2]), {}, TypeError, r"got tuple"),
    "unknown format": (("csx", CSC), {}, ValueError, r"'coo', 'csr' or 'csc', got 'csx'"),
    "arrays missing": (("csc", CSC[:2]), {}, ValueError, r"expected 3 arrays .* 'csc', got 2"),
    "indptr of wrong length": (
        ("csc", CSC),
        {"num_nodes": 4},
        ValueError,
        r"`indptr` of shape \(num_nodes \+ 1,\) = \(5,\), got \(4,\)",
    ),
    "empty indptr": (("csc", ([], [], [])), {}, ValueError, r"got an empty one"),
    "indptr starts late": (("csr", ([1, 2, 3], [0, 1, 0], [])), {}, ValueError, r"start with 0"),
    "indptr ends early": (
        ("csr", ([0, 1, 2], [0, 1, 0], [])),
        {},
        ValueError,
        r"end with the number of edges 3, got 2",
    ),
    "indptr decreases": (
        ("csr", ([0, 2, 1, 3], [0, 1, 0], [])),
        {},
        ValueError,
        r"never decrease, got 2 then 1 at position 2",
    ),
    "index too large": (
        ("csc", ([0, 1, 2, 3], [1, 3, 0], [])),
        {},
        ValueError,
        r"`indices` ids in \[0, 3\), got 3 at position 1",
    ),
    "indices on the other side": (
        ("csc", ([0, 1, 2, 3], [1, 3, 0], [])),
        {"num_src_nodes": 3, "num_dst_nodes": 3},
        ValueError,
        r"pass num_src_nodes=4",
    ),
    "eids too few": (("csc", (*CSC[:2], [0, 1])), {}, ValueError, r"`eids` of shape .*\(3,\)"),
    "eids too large": (("csc", (*CSC[:2], [0, 1, 3])), {}, ValueError, r"`eids` in \[0, 3\)"),
    "eids twice": (("csc", (*CSC[:2], [0, 1, 1])), {}, ValueError, r"once in `eids`, got 1 twice"),
    "num_nodes no int": (OK, {"num_nodes": 3.0}, TypeError, r"`num_nodes` as an int, got float"),
    "num_nodes negative": (OK, {"num_nodes": -1}, ValueError, r"`num_nodes` >= 0, got -1"),
    "both kinds of sizes": (OK, {"num_nodes": 3, "num_src_nodes": 3}, ValueError, r"got both"),
    "block without sizes": (OK, {"block": True}, ValueError, r"for a block, got num_src_nodes=No"),
    "block too wide": (
        OK,
        {"block": True, "num_src_nodes": 2, "num_dst_nodes": 3},
        ValueError,
        r"num_src_nodes >= num_dst_nodes for a block",
    ),
    "idtype": (OK, {"idtype": torch.int16}, TypeError, r"torch.int32 or torch.int64, got torch.i"),
    "networkx labels": (
        nx.Graph([(1, "one")]),
        {},
        TypeError,
        r"labels that can be sorted.*convert_node_labels_to_integers",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str) -> None:
    data, options, error, text = CASES[name]
    with pytest.raises(error, match=text):
        dgl_flash.graph(data, **options)
    assert dgl_flash.graph(OK, num_nodes=3).in_degrees().tolist() == [0, 1, 1]


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
def test_layouts_that_have_no_edges() -> None:
    matrix = torch.eye(4).to_sparse_bsr((2, 2))
    with pytest.raises(TypeError, match=r"layout COO, CSR or CSC, got torch\.sparse_bsr"):
        dgl_flash.graph(matrix)
    with pytest.raises(ValueError, match="two dimensions"):
        dgl_flash.graph(torch.zeros(2, 2, 2).to_sparse())


def test_nothing_is_allocated_before_the_check() -> None:
    """Ids near 2^31 with a small num_nodes fail at once, not after a table of that many rows."""
    with pytest.raises(ValueError, match="got 2147483000"):
        dgl_flash.graph(([2147483000], [0]), num_nodes=10)
