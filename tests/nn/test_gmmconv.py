"""GMMConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial
from itertools import product

import dgl_flash

# isort: split
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from dgl_flash.demo.memory import peak_memory
from dgl_flash.nn.gaussians import gaussians
from tests.graphs import (
    batched,
    bipartite_down,
    bipartite_up,
    block,
    empty,
    isolated_rows,
    no_nodes,
    path,
    regular,
    zoo,
)
from tests.nn.common import (
    assert_same,
    draw,
    every_graph,
    every_idtype,
    features,
    ours,
    raised,
    randomise,
    run,
    theirs,
    twins,
)
from tests.numerics import check_op, outputs_and_grads, pseudo_random

GMM = partial(twins, "GMMConv")
ANY_DEGREE = {"allow_zero_in_degree": True}
every_aggregator = pytest.mark.parametrize("aggregator", ["sum", "mean", "max"])


def pseudo(graph, dim=3):
    return draw(graph.num_edges(), dim, seed=4)


@every_graph
@pytest.mark.parametrize("aggregator", ["sum", "mean"])
def test_zoo(name, aggregator, device):
    graph = zoo()[name](torch.int64)
    layers = GMM(4, 3, 3, 2, aggregator, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph))


# DGL's maximum has no gradient on a graph without edges; see below.
@pytest.mark.parametrize("name", sorted(zoo().keys() - {"empty", "no_nodes"}))
def test_zoo_of_maxima(name, device):
    graph = zoo()[name](torch.int64)
    layers = GMM(4, 3, 3, 2, "max", **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph))


@pytest.mark.parametrize("builder", [empty, no_nodes])
def test_maximum_without_edges(builder, device):
    graph = builder()
    layer = GMM(4, 3, 3, 2, "max", **ANY_DEGREE)[0]
    randomise(layer)
    found = run(layer, graph, features(graph, 4), device, torch.float32, pseudo=pseudo(graph))
    assert torch.equal(found["out0"], layer.bias.detach().expand(graph.num_nodes(), 3))
    assert not found["grad_feat0"].any()


@every_idtype
@every_aggregator
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, aggregator, idtype, device):
    graph = builder(idtype)
    layers = GMM(4, 3, 3, 2, aggregator, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph))


@every_aggregator
@pytest.mark.parametrize("builder", [regular, block, bipartite_down])
@pytest.mark.parametrize("out_feats", [3, 4], ids=["projected", "as it is"])
def test_residual(aggregator, builder, out_feats, device):
    graph = builder()
    layers = GMM(4, out_feats, 3, 2, aggregator, residual=True, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph))


@pytest.mark.parametrize("residual", [False, True])
def test_two_input_widths(residual, device):
    graph = bipartite_up()
    feat = draw(graph.num_src_nodes(), 4), draw(graph.num_dst_nodes(), 5, seed=1)
    layers = GMM((4, 5), 3, 3, 2, residual=residual, **ANY_DEGREE)
    assert_same(layers, graph, feat, device, pseudo=pseudo(graph))


@pytest.mark.parametrize("kernels", [1, 2, 5])
@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_kernels_and_dimensions(kernels, dim, bias, device):
    graph = regular()
    layers = GMM(4, 3, dim, kernels, bias=bias)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph, dim))


def test_coordinates_in_a_row(device):
    """DGL views the pseudo-coordinates as (E, dim), whatever their shape."""
    graph = regular()
    layers = GMM(4, 3, 3, 2)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph).flatten())


def test_far_coordinates(device):
    """Far from 0 and near to a mean: the exponent must not cancel."""
    graph = regular()
    layers = GMM(4, 3, 3, 2)
    for layer in layers:
        with torch.no_grad():
            layer.mu.add_(100)
    assert_same(layers, graph, features(graph, 4), device, pseudo=100 + pseudo(graph))


def test_path_by_hand(device):
    """Coordinates on the mean weigh 1, two widths away exp(-2)."""
    layer = GMM(1, 1, 1, 1, bias=False, **ANY_DEGREE)[0].to(device)
    with torch.no_grad():
        layer.mu.fill_(3)
        layer.fc.weight.fill_(2)
        layer.inv_sigma.fill_(0.5)
    coordinates = torch.tensor([[3.0], [7.0]], device=device)
    out = layer(path(), torch.tensor([[1.0], [10.0], [100.0]], device=device), coordinates)
    assert out.flatten().tolist() == pytest.approx([0, 2, 20 * torch.tensor(-2.0).exp().item()])


def test_unknown_aggregator():
    mine, other = (
        raised(partial(library.GMMConv, 4, 3, 3, 2, "min")) for library in (ours, theirs)
    )
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_zero_in_degree():
    graph = isolated_rows()
    layers = GMM(4, 3, 3, 2)
    calls = [partial(layer, graph, features(graph, 4), pseudo(graph)) for layer in layers]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))
    for layer in layers:
        layer.set_allow_zero_in_degree(True)
    assert_same(layers, graph, features(graph, 4), pseudo=pseudo(graph))


def test_coordinates_of_other_edges_are_refused():
    graph = regular()
    calls = [partial(layer, graph, features(graph, 4), draw(29, 3)) for layer in GMM(4, 3, 3, 2)]
    mine, other = (raised(call) for call in calls)
    assert type(mine) is type(other) is RuntimeError


def test_own_container(device):
    graph = regular()
    layer = GMM(4, 3, 3, 2)[0].to(device)
    feat, given = features(graph, 4).to(device), pseudo(graph).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat, given), layer(graph, feat, given))


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    GMM(4, 3, 3, 2)[0](graph, features(graph, 4), pseudo(graph))
    assert not graph.ndata
    assert not graph.edata


def formula(pseudo, mu, inv_sigma):
    """What the layer's docstring says, of one tensor (E, K, dim) after the other."""
    scaled = (pseudo.unsqueeze(1) - mu) * inv_sigma
    return torch.exp(-0.5 * scaled.square().sum(dim=-1))


def gaussian_arguments(device, num_edges=7, kernels=4, dim=3, dtype=torch.float64, centre=0):
    arguments = {
        "pseudo": centre + draw(num_edges, dim),
        "mu": centre + draw(kernels, dim, seed=1),
        "inv_sigma": draw(kernels, dim, seed=2),
    }
    return {name: value.to(device, dtype) for name, value in arguments.items()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("centre", [0, 100])
def test_gaussians_are_as_exact_as_the_formula(dtype, centre, device):
    """Where no sum cancels: all edges lie on one side of all means, no gradient is negative."""

    def rising(function, **arguments):
        weight = function(**arguments)
        return weight.square() * pseudo_random(weight)

    ulps = {"grad_mu": 16, "grad_inv_sigma": 16}
    for dim in (1, 3, 8):
        arguments = gaussian_arguments(device, 500, 4, dim, dtype, centre)
        shift = arguments["pseudo"].amin() - arguments["mu"].amax()
        arguments["pseudo"] = arguments["pseudo"] - shift
        arguments["inv_sigma"] = arguments["inv_sigma"].abs() / 4
        check_op(partial(rising, gaussians), partial(rising, formula), arguments, ulps=ulps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("centre", [0, 100])
@pytest.mark.parametrize("dim", [1, 3, 8])
def test_sums_over_edges_lose_no_more_than_their_terms(dim, centre, dtype, device):
    """Where they cancel, any order of adding up errs in proportion to the sum of the sizes."""
    arguments = gaussian_arguments(device, 500, 4, dim, dtype, centre)
    found = outputs_and_grads(gaussians, arguments)
    exact = outputs_and_grads(formula, arguments, dtype=torch.float64)
    pseudo, mu, inv_sigma = (value.double() for value in arguments.values())
    offset = pseudo.unsqueeze(1) - mu
    pull = (exact["out"] * pseudo_random(exact["out"])).unsqueeze(2) * offset * inv_sigma
    sizes = {
        "grad_mu": (pull * inv_sigma).abs().sum(dim=0),
        "grad_inv_sigma": (pull * offset).abs().sum(dim=0),
    }
    for name, size in sizes.items():
        error = (found[name].double() - exact[name]).abs()
        assert (error <= 4 * torch.finfo(dtype).eps * size).all(), name


@pytest.mark.parametrize("shape", [(7, 4, 0), (7, 0, 3), (0, 4, 3)], ids=str)
def test_gaussians_of_nothing(shape, device):
    check_op(gaussians, formula, gaussian_arguments(device, *shape))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.float64], ids=str)
def test_dtypes_of_coordinates_and_means_promote(dtype, device):
    arguments = gaussian_arguments(device, dtype=torch.float32)
    arguments["pseudo"] = arguments["pseudo"].to(dtype)
    torch.testing.assert_close(gaussians(**arguments), formula(**arguments))


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize("needed", [*product([False, True], repeat=3)][1:], ids=str)
def test_derivatives_of_gaussians(check, needed, device):
    """Of every choice of arguments; what needs no gradient gets none."""
    arguments = list(gaussian_arguments(device).values())
    for value, needs_gradient in zip(arguments, needed, strict=True):
        value.requires_grad_(needs_gradient)
    assert check(gaussians, arguments)


def test_gaussians_change_nothing_in_place(device):
    arguments = list(gaussian_arguments(device).values())
    for value in arguments:
        value.requires_grad_()
    out = gaussians(*arguments)
    given = [*(value.detach() for value in arguments), out.detach(), torch.ones_like(out)]
    copies = [value.clone() for value in given]
    torch.autograd.grad(out, arguments, given[-1])
    assert all(map(torch.equal, given, copies))


def test_gaussians_keep_their_arguments_and_result_only(device):
    kept = []
    arguments = gaussian_arguments(device)
    leaves = [value.requires_grad_() for value in arguments.values()]
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        out = gaussians(*leaves)
    assert [tensor.data_ptr() for tensor in kept] == [t.data_ptr() for t in (*leaves, out)]


@pytest.mark.parametrize("dim", [2, 16])
def test_memory_of_gaussians_does_not_grow_with_the_coordinates(dim, device):
    """The weights, one temporary and the gradient of the coordinates at the most."""
    num_edges, kernels = 40_000, 8
    arguments = gaussian_arguments(device, num_edges, kernels, dim, torch.float32)
    leaves = [value.requires_grad_() for value in arguments.values()]
    grad_out = torch.ones(num_edges, kernels, device=device)

    def step(weights):
        return torch.autograd.grad(weights(*leaves), leaves, grad_out)

    one, gradient = 4 * num_edges * kernels, 4 * num_edges * dim
    step(gaussians)  # what is made once
    assert peak_memory(partial(step, gaussians), device) < 2.5 * one + gradient
    assert peak_memory(partial(step, formula), device) > 2 * one * dim
