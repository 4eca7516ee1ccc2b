"""One layer of ours beside its twin from DGL: same weights, same graph, same features."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dgl_flash.nn as ours

# isort: split
import dgl
import dgl.nn as theirs
import pytest
import torch
from torch import Tensor, nn

from tests.graphs import small_zoo, zoo
from tests.nn import cugraph_ops
from tests.numerics import assert_accurate, pseudo_random

every_graph = pytest.mark.parametrize("name", sorted(zoo()))
cugraph_ops.install()
TWO_NODE_SETS = {"bipartite_up", "bipartite_down", "block", "relation_slice"}
homogeneous_graph = pytest.mark.parametrize("name", sorted(zoo().keys() - TWO_NODE_SETS))
small_graph = pytest.mark.parametrize("name", sorted(small_zoo()))
# On a GPU attention dropout and attention output take the reference path, and say so.
may_fall_back = pytest.mark.filterwarnings("ignore::dgl_flash.errors.FallbackWarning")
every_idtype = pytest.mark.parametrize("idtype", [torch.int32, torch.int64], ids=str)


def twins(name: str, *args: Any, **kwargs: Any) -> tuple[nn.Module, nn.Module]:
    """Build the same layer in both libraries, from the same seed."""
    layers = []
    for library in (ours, theirs):
        torch.manual_seed(7)
        layers.append(getattr(library, name)(*args, **kwargs))
    return layers[0], layers[1]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def features(graph: dgl.DGLGraph, width: int, *extra: int) -> Tensor | tuple[Tensor, Tensor]:
    """A tensor where DGL takes one, else a pair."""
    feat = draw(graph.num_src_nodes(), *extra, width)
    if graph.is_block or graph.is_homogeneous:
        return feat
    return feat, draw(graph.num_dst_nodes(), *extra, width, seed=1)


def for_dgl(graph: dgl.DGLGraph) -> dgl.DGLGraph:
    """DGL's own layers need formats that a restricted graph refuses to them."""
    return graph if graph.is_block else graph.formats(["coo", "csr", "csc"])


def randomise(layer: nn.Module) -> None:
    """Biases start at 0, which would hide how they enter."""
    with torch.no_grad():
        for i, (_, parameter) in enumerate(sorted(layer.named_parameters())):
            parameter.add_(0.1 * draw(*parameter.shape, seed=100 + i).to(parameter))


def run(
    layer: nn.Module,
    graph: Any,
    feat: Any,
    device: torch.device | str,
    dtype: torch.dtype,
    **kw: Any,
) -> dict[str, Tensor]:
    """Outputs and all gradients of one forward and backward."""
    layer = layer.to(device=device, dtype=dtype)
    layer.zero_grad(set_to_none=True)

    def leaf(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(leaf(part) for part in value)
        if not isinstance(value, Tensor):
            return value
        if not value.is_floating_point():
            return value.to(device)
        return value.to(device=device, dtype=dtype, copy=True).requires_grad_()

    feat, kw = leaf(feat), {name: leaf(value) for name, value in kw.items()}
    outputs = layer(graph, feat, **kw)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    torch.autograd.backward(outputs, [pseudo_random(out) for out in outputs])
    sides = feat if isinstance(feat, tuple) else (feat,)
    given = {f"feat{i}": side for i, side in enumerate(sides)}
    given.update({name: value for name, value in kw.items() if isinstance(value, Tensor)})
    given = {name: value for name, value in given.items() if value.requires_grad}
    results = {f"out{i}": out.detach() for i, out in enumerate(outputs)}
    for name, value in (*given.items(), *layer.named_parameters()):
        grad = value.grad
        results[f"grad_{name}"] = torch.zeros_like(value) if grad is None else grad.clone()
    return results


def assert_same(
    pair: tuple[nn.Module, nn.Module],
    graph: dgl.DGLGraph,
    feat: Any,
    device: torch.device | str = "cpu",
    ulps: float = 64,
    **kwargs: Any,
) -> dict[str, Tensor]:
    """Judge our float32 outputs and gradients by DGL's, with DGL's in float64 as the oracle.

    The allowance is generous: a layer multiplies matrices and sums over the graph what partly
    cancels, in an order of its own. The ops are judged for exactness, the layers for sameness.
    """
    mine, other = pair
    randomise(mine)
    other.load_state_dict(mine.state_dict())
    found = run(mine, graph, feat, device, torch.float32, **kwargs)
    usual = run(other, for_dgl(graph), feat, "cpu", torch.float32, **kwargs)
    exact = run(other, for_dgl(graph), feat, "cpu", torch.float64, **kwargs)
    other.float()
    assert found.keys() == exact.keys()
    parameters = {f"grad_{name}" for name, _ in mine.named_parameters()}
    for name, value in found.items():
        judged = [value.cpu(), usual[name], exact[name]]
        if name in parameters:
            # A sum over the whole graph: its rows are no results of their own.
            judged = [tensor.reshape(1, -1) for tensor in judged]
        # One dot product an edge: where its terms cancel, the order of the sum shows.
        allowed = 4 * ulps if name in ("grad_edge_weight", "grad_norm") else ulps
        assert_accurate(*judged, what=name, ulps=allowed)
    return found


def raised(call: Callable[[], object]) -> Exception:
    """Return the exception that a call ends in."""
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def assert_compiles(layer: nn.Module, graph: Any, feat: Any, **kwargs: Any) -> None:
    """A known graph is one traced graph without a break, and gives the eager results."""
    torch._dynamo.reset()
    expected = layer(graph, feat, **kwargs)
    expected.sum().backward()
    gradients = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's compiler, which differ between releases
        found = torch.compile(layer, backend="aot_eager", fullgraph=True)(graph, feat, **kwargs)
        found.sum().backward()
    torch.testing.assert_close(found, expected)
    for parameter, gradient in zip(layer.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
