"""Write docs/layers.md, a row for every public name of ``dgl_flash.nn``: python -m docs.layers.

Nothing in it is written by hand: texts are the "Fused path" paragraphs of the docstrings, kinds and
dtypes are what happens when each layer is called as the tests call it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import dgl_flash.nn as nn

# isort: split
import dgl
import torch
from torch import Tensor

from dgl_flash.nn import missing
from dgl_flash.ops.attention import MAX_HEAD_DIM
from dgl_flash.ops.dispatch import record
from tests.graphs import regular
from tests.nn.layers import LAYERS, Layer, leaves, to

PAGE = Path(__file__).with_suffix(".md")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# What dgl.nn itself has not, but a module of it, and so one of ours.
PARTS = {
    "InducedSetAttentionBlock": nn.glob,
    "MultiHeadAttention": nn.glob,
    "PMALayer": nn.glob,
    "SetAttentionBlock": nn.glob,
    "get_aggregate_fn": nn.hetero,
}
HEAD = """\
# What every layer runs

`make docs` writes this page: change the docstrings, not the page.

- **fused**: sums, softmaxes, attention or products over edges or members run in CUDA kernels of
  this package, forward and backward.
- **accelerated**: no kernel of this package, but another algorithm than DGL's, in torch.
- **plain torch**: what torch has for it, as in DGL.
- **its layers'**: as the layers are, or the model, that it is given.
- **DGL's own**: the class of DGL itself.

Results have the dtype of features and parameters, for each that is listed; kernels accumulate half
types in float32. Where CuPy is missing, or a GPU that it knows, what is fused runs as on the CPU.
`dgl_flash.explain(layer, graph, feat)` says for one call which path it took, and why.

| name | kind | dtypes | on CUDA | what falls back, or is no kernel's |
| --- | --- | --- | --- | --- |
"""
ATTENTION = {"gatv2", "gat", "dot_attention"}
USUAL = "On the CPU plain torch computes the same."
SENTENCES = re.compile(r"(?<=[a-z0-9`$)]\.) (?=[A-Z:`$])|(?<=\.) (?=(?:On t|T)he CPU)")
OF_THE_CPU = re.compile(r"^On the CPU|^The CPU|, and the CPU,")
NO_KERNELS = re.compile(r"plain torch|\bhooks?\b|replaced|overridden|reference path|`\"lstm\"` has")


@dataclass(frozen=True)
class Seen:
    """What came of calling something: its ops that have kernels, and the dtypes that it kept."""

    ops: frozenset[str] = frozenset()
    dtypes: tuple[torch.dtype, ...] = ()


def points(make: Callable[[Tensor], Any]) -> Callable[[torch.dtype], Any]:
    """Call with twelve points in a plane."""
    return lambda dtype: make(torch.arange(24).view(12, 2).to(dtype))


def sets(make: Callable[[], torch.nn.Module], memory: bool = False) -> Callable[..., Any]:
    """Call a block on two sets of rows."""

    def call(dtype: torch.dtype) -> Any:
        rows = (torch.ones(10, 6, dtype=dtype),) * (1 + memory)
        return make().to(dtype)(*rows, *([4, 6],) * (1 + memory))

    return call


def normalised(dtype: torch.dtype) -> Tensor:
    """Call EdgeConv with messages, which a normalisation needs."""
    graph = regular()
    feat = torch.arange(3 * graph.num_nodes()).view(-1, 3).to(dtype)
    found: Tensor = nn.EdgeConv(3, 2, batch_norm=True).to(dtype)(graph, feat)
    return found


# What is no layer of the tests' table, or not as it stands there.
CALLS: dict[str, Callable[[torch.dtype], Any]] = {
    "EdgeConv": normalised,
    "InducedSetAttentionBlock": sets(lambda: nn.glob.InducedSetAttentionBlock(4, 6, 2, 3, 5)),
    "KNNGraph": points(lambda x: nn.KNNGraph(3)(x)),
    "MultiHeadAttention": sets(lambda: nn.glob.MultiHeadAttention(6, 2, 3, 5), memory=True),
    "PMALayer": sets(lambda: nn.glob.PMALayer(4, 6, 2, 3, 5)),
    "RadiusGraph": points(lambda x: nn.RadiusGraph(3.0)(x, get_distances=True)[1]),
    "SegmentedKNNGraph": points(lambda x: nn.SegmentedKNNGraph(3)(x, [4, 8])),
    "SetAttentionBlock": sets(lambda: nn.glob.SetAttentionBlock(6, 2, 3, 5)),
    "edge_softmax": lambda dtype: nn.edge_softmax(regular(), torch.ones(30, 2, dtype=dtype)),
    "expand_as_pair": points(lambda x: nn.expand_as_pair(x)[0]),
    "get_aggregate_fn": points(lambda x: nn.hetero.get_aggregate_fn("sum")([x, x], "user")),
    "knn_graph": points(lambda x: nn.knn_graph(x, 3)),
    "pairwise_squared_distance": points(lambda x: nn.pairwise_squared_distance(x[None])),
    "radius_graph": points(lambda x: nn.radius_graph(x, 3.0, get_distances=True)[1]),
    "segmented_knn_graph": points(lambda x: nn.segmented_knn_graph(x, 3, [4, 8])),
}


def names() -> list[str]:
    """Everything that has a row."""
    public = {*nn.__all__, *missing.LAZY, *PARTS}
    return sorted(
        (name for name in public if not inspect.ismodule(find(name))),
        key=lambda name: (name.lower(), name),
    )


def find(name: str) -> Any:
    """The class or function, or a module."""
    home: ModuleType = PARTS.get(name, nn)
    return getattr(home, name)


def call_layer(layer: Layer, graph: Any, dtype: torch.dtype) -> Any:
    """Run a layer of the tests' table in a dtype."""
    return layer.call(layer.make().to(dtype), graph, to(layer.inputs(graph), dtype))


def observe(name: str) -> Seen:
    """Call something in every dtype."""
    graph = regular()
    if find(name).__module__.startswith("dgl_flash.nn.glob"):
        graph = dgl.batch([graph, graph])  # one graph alone is read out without an op on the CPU
    calls = [CALLS[name]] if name in CALLS else []
    for key, layer in LAYERS.items():
        if key.split()[0] == name:
            calls.append(partial(call_layer, layer, graph))
    with record() as choices:
        kept = [dtype for dtype in DTYPES if calls and all(keeps(call, dtype) for call in calls)]
    # Of what runs here nothing but the CPU may stand against the kernels.
    fused = frozenset(choice.op for choice in choices if len(choice.reasons) == 1)
    return Seen(fused, tuple(kept))


def keeps(call: Callable[[torch.dtype], Any], dtype: torch.dtype) -> bool:
    """Whether a call works in a dtype, and returns it; a graph of points has none."""
    try:
        found = call(dtype)
    except RuntimeError:  # torch lacks some function in it
        return False
    parts = found if isinstance(found, tuple) else (found,)
    return all(part.dtype == dtype for part in leaves({str(i): p for i, p in enumerate(parts)}))


def paragraph(name: str) -> str:
    """What the docstring says about the fused path, as Markdown."""
    text = inspect.getdoc(find(name)) or ""
    if not is_ours(name):
        text = f"**Fused path.** {importlib.import_module(missing.LAZY[name]).__doc__}"
    found = re.search(r"\*\*Fused path\.\*\*\s+(.+?)(?:\n\n|\Z)", text, re.DOTALL)
    if found is None:
        raise ValueError(f"{name}: expected a docstring with a paragraph **Fused path.**")
    text = " ".join(found.group(1).split())
    text = re.sub(r":math:`(.+?)`", r"$\1$", text)
    text = re.sub(r":class:`(.+?)`", r"`\1`", text)
    return text.replace("``", "`").replace("|", r"\|")


def is_ours(name: str) -> bool:
    """Whether it is code of this package."""
    return find(name).__module__.startswith("dgl_flash.")


def kind(name: str, seen: Seen) -> str:
    """How it is computed, in a word or two."""
    text = paragraph(name)
    if not is_ours(name):
        return "DGL's own"
    if re.match(r"That of (the|each) (wrapped module|layers?)\b", text):
        return "its layers'"
    if seen.ops:
        return "fused"
    return "plain torch" if re.match(r"There is none|None\b", text) else "accelerated"


def row(name: str) -> str:
    """One line of the table."""
    seen = observe(name)
    what = kind(name, seen)
    sentences = SENTENCES.split(re.sub(r"^(There is none|None)\b", "No kernel", paragraph(name)))
    others = [sentence for sentence in sentences if falls_back(sentence, what)]
    kernels = [sentence for sentence in sentences if sentence not in others]
    others = [sentence for sentence in others if sentence != USUAL]
    if what == "fused" and not any(map(OF_THE_CPU.search, others)):
        wide = f", and for heads wider than {MAX_HEAD_DIM}," if seen.ops & ATTENTION else ""
        others.append(f"On the CPU{wide} plain torch computes the same.")
    dtypes = ", ".join(str(dtype).removeprefix("torch.") for dtype in seen.dtypes)
    unseen = "DGL's" if what == "DGL's own" else "those of its layers"
    cells = (f"`{name}`", what, dtypes or unseen, " ".join(kernels), " ".join(others) or "the same")
    return f"| {' | '.join(cells)} |\n"


def falls_back(sentence: str, what: str) -> bool:
    """Whether a sentence is about what runs beside or instead of the kernels."""
    beside = what == "fused" and "CUDA" not in sentence and NO_KERNELS.search(sentence)
    return bool(beside or OF_THE_CPU.search(sentence))


def page() -> str:
    """The whole page."""
    return HEAD + "".join(map(row, names()))


if __name__ == "__main__":
    PAGE.write_text(page())
