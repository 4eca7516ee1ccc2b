"""KNNGraph, SegmentedKNNGraph and RadiusGraph make DGL's graphs of points."""

from __future__ import annotations

import warnings
from functools import partial

import dgl_flash.nn as ours

# isort: split
import dgl
import dgl.nn as theirs
import pytest
import torch

from dgl_flash.demo.memory import peak_memory
from dgl_flash.nn import neighbours
from tests.nn.common import draw

ALGORITHMS = ["bruteforce-blas", "bruteforce", "bruteforce-sharemem", "kd-tree", "nn-descent"]
SHAPES = [(1, 2), (10, 3), (200, 2), (300, 8), (150, 20)]  # by matrix products, and by a tree
NORMS = [0, 0.5, 1, 1.5, 2, 3, float("inf")]
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_metric = pytest.mark.parametrize("dist", ["euclidean", "cosine"])
either_self = pytest.mark.parametrize("exclude_self", [False, True])
both_searches = pytest.mark.parametrize("width", [3, 12])


def facts(graph):
    """All there is to a batch of graphs of points, with edges in their order."""
    assert graph.idtype == torch.int64 and graph.device.type == "cpu"
    sizes = (graph.batch_num_nodes().tolist(), graph.batch_num_edges().tolist())
    return torch.stack(graph.edges(order="eid")), graph.num_nodes(), sizes


def assert_equal(mine, other):
    """Same edges, numbered alike, same nodes, same members."""
    assert type(mine) is type(other) is dgl.DGLGraph
    (edges, *found), (expected, *usual) = facts(mine), facts(other)
    assert found == usual
    assert torch.equal(edges, expected)


def outcome(call):
    """What a call says: its warnings, or the class and text of its error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = facts(call())[1:]
        except Exception as error:
            result = type(error), str(error)
    return result, [(warning.category, str(warning.message)) for warning in caught]


def grid(side=12):
    """Points of which many are equally far, and lie on the edge of a radius of 1."""
    return torch.cartesian_prod(*[torch.arange(float(side))] * 2)


def lengths(x, graph):
    """(N, k), sorted: how far the neighbours of each point are."""
    src, dst = graph.edges(order="eid")
    assert torch.equal(dst, dst.sort().values)
    return (x[src] - x[dst]).norm(dim=1).reshape(len(x), -1).sort().values


@every_shape
@every_dtype
@every_metric
@either_self
@pytest.mark.parametrize("k", [1, 7])
def test_one_set(shape, dtype, dist, exclude_self, k, device):
    x = draw(*shape).to(dtype)
    k = min(k, shape[0] - exclude_self)
    args = ("bruteforce-blas", dist, exclude_self)
    found = ours.KNNGraph(k)(x.to(device), *args)
    assert_equal(found, theirs.KNNGraph(k)(x.double(), *args))


@pytest.mark.parametrize("shape", [(3, 10, 3), (1, 40, 20), (3, 150, 4), (40, 9, 2)], ids=str)
@every_dtype
@every_metric
@either_self
def test_sets_of_one_size(shape, dtype, dist, exclude_self, device):
    x = draw(*shape).to(dtype)
    args = ("bruteforce-blas", dist, exclude_self)
    found = ours.KNNGraph(4)(x.to(device), *args)
    assert_equal(found, theirs.KNNGraph(4)(x.double(), *args))


@pytest.mark.parametrize("sizes", [[10], [5, 30, 5, 7], [140, 9, 200, 140]], ids=str)
@pytest.mark.parametrize("kind", [list, tuple])
@every_metric
@either_self
@both_searches
def test_sets_that_differ_in_size(sizes, kind, dist, exclude_self, width, device):
    x = draw(sum(sizes), width)
    args = (kind(sizes), "bruteforce-blas", dist, exclude_self)
    found = ours.SegmentedKNNGraph(4)(x.to(device), *args)
    assert_equal(found, theirs.SegmentedKNNGraph(4)(x.double(), *args))


def test_sizes_in_a_tensor():
    x, layer = draw(20, 3), ours.SegmentedKNNGraph(3)
    assert_equal(layer(x, torch.tensor([8, 12])), layer(x, [8, 12]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@either_self
@both_searches
def test_algorithms(algorithm, exclude_self, width, device):
    """All find the same. DGL's differ in the order of the edges of a point."""
    x = draw(200, width)
    args = (algorithm, "euclidean", exclude_self)
    found = ours.KNNGraph(6)(x.to(device), *args)
    exact = theirs.KNNGraph(6)(x.double(), "bruteforce-blas", *args[1:])
    assert_equal(found, exact)
    if algorithm in ("bruteforce", "kd-tree"):
        usual = theirs.KNNGraph(6)(x.double(), *args)
        for one, other in zip(
            found.edges(order="srcdst"), usual.edges(order="srcdst"), strict=True
        ):
            assert torch.equal(one, other)


@either_self
@pytest.mark.parametrize("k", [1, 4, 6, 20])
@pytest.mark.parametrize("width", [2, 12])
def test_equally_near_points(k, exclude_self, width, device):
    """Which of them are taken is not defined; how far they are is. Their order is that of ids."""
    x = torch.cat([grid(), torch.zeros(144, width - 2)], 1)
    args = ("bruteforce-blas", "euclidean", exclude_self)
    found = ours.KNNGraph(k)(x.to(device), *args)
    torch.testing.assert_close(lengths(x, found), lengths(x, theirs.KNNGraph(k)(x, *args)))
    src, dst = found.edges(order="eid")
    assert exclude_self <= bool((src != dst).all())
    keys = torch.stack([dst.double(), (x[src] - x[dst]).norm(dim=1).double(), src.double()], 1)
    assert keys.tolist() == sorted(keys.tolist())


@pytest.mark.parametrize("count", [10, 200])
@both_searches
def test_coincident_points(count, width, device):
    """Each has k neighbours, and never itself, however many are where it is."""
    x = torch.zeros(count, width, device=device)
    for layer, args in ((ours.KNNGraph(3), ()), (ours.SegmentedKNNGraph(3), ([4, count - 4],))):
        graph = layer(x, *args, exclude_self=True)
        assert graph.in_degrees().tolist() == [3] * count
        assert not graph.has_edges_between(graph.nodes(), graph.nodes()).any()


@both_searches
def test_far_from_the_origin(width, device):
    """In DGL products of coordinates cancel there, and float32 loses the neighbours."""
    x = draw(200, width) + 4096
    found, exact = ours.KNNGraph(5)(x.to(device)), theirs.KNNGraph(5)(x.double(), "kd-tree")
    assert_equal(found, exact)
    usual = theirs.KNNGraph(5)(x)
    assert not torch.equal(usual.edges()[0], exact.edges()[0])
    # Nor is the origin of float64 far enough.
    x = draw(200, width).double() + 2.0**26
    assert_equal(ours.KNNGraph(5)(x.to(device)), theirs.KNNGraph(5)(x, "kd-tree"))


def test_clusters_far_from_each_other(device):
    """Products round away what differs within them: the candidates are compared once more."""
    x = 1e-5 * draw(200, 12).double()
    x[::2] += 50
    assert_equal(ours.KNNGraph(5)(x.to(device)), theirs.KNNGraph(5)(x, "kd-tree"))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.int32, torch.int64], ids=str
)
def test_other_dtypes(dtype, device):
    x = (8 * draw(60, 12)).to(dtype)
    found = ours.KNNGraph(5)(x.to(device))
    exact = theirs.KNNGraph(5)(x.double())
    torch.testing.assert_close(lengths(x.double(), found), lengths(x.double(), exact))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@both_searches
def test_points_that_are_not_finite(value, width, device):
    """They are the last neighbours of the others, which find each other as without them."""
    x = draw(200, width)
    x[150:, 1] = value
    found = ours.KNNGraph(5)(x.to(device))
    expected = ours.KNNGraph(5)(x[:150])
    assert torch.equal(found.edges()[0][: 150 * 5], expected.edges()[0])
    assert found.in_degrees().tolist() == [5] * 200


@both_searches
def test_non_contiguous_points(width, device):
    x = draw(width, 400).to(device).t()[::2]
    assert_equal(ours.KNNGraph(5)(x), ours.KNNGraph(5)(x.contiguous()))
    assert_equal(ours.RadiusGraph(1.0)(x), ours.RadiusGraph(1.0)(x.contiguous()))


@pytest.mark.parametrize("budget", [1, 24 * 500, 24 * 5000, 24 * 100_000])
@pytest.mark.parametrize("shape", [(1, 150, 12), (7, 30, 12), (1, 150, 40), (1, 150, 3)], ids=str)
def test_blocks_do_not_show(budget, shape, device, monkeypatch):
    x = draw(*shape).to(device)
    monkeypatch.setattr(neighbours, "_TREE_POINTS", 10**9)
    radius = ours.RadiusGraph(2.5)
    expected = ours.KNNGraph(6)(x), radius(x[0])
    monkeypatch.setattr(neighbours, "BUDGET", budget * shape[0])
    assert_equal(ours.KNNGraph(6)(x), expected[0])
    monkeypatch.setattr(neighbours, "BUDGET", max(budget, 24 * 150))
    assert_equal(radius(x[0]), expected[1])


def test_memory(device):
    """A matrix of all distances would take 3.2 GB."""
    x = draw(20_000, 9).to(device)
    held = x.double().nbytes + 20_000 * 16 * 8
    assert peak_memory(lambda: neighbours.nearest(x[None], 16), device) < (
        neighbours.BUDGET + 3 * held
    )


@both_searches
@every_dtype
@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("self_loop", [False, True])
def test_radius(width, dtype, p, self_loop, device):
    x = draw(200, width).to(dtype)
    x[:60, 0] = 0
    r = float(torch.cdist(x, x, p=p).flatten().kthvalue(2000).values) * (1 + 1e-4)
    found, distances = ours.RadiusGraph(r, p, self_loop)(x.to(device), get_distances=True)
    expected, usual = theirs.RadiusGraph(r, p, self_loop)(x, get_distances=True)
    assert 200 < expected.num_edges() < 200 * 150
    assert_equal(found, expected)
    assert distances.device.type == device.type and distances.dtype == dtype
    torch.testing.assert_close(distances.cpu(), usual)
    assert_equal(ours.RadiusGraph(r, p, self_loop)(x.to(device)), expected)


@pytest.mark.parametrize("count", [1, 20, 200])
@pytest.mark.parametrize(
    "mode",
    [
        "use_mm_for_euclid_dist_if_necessary",
        "use_mm_for_euclid_dist",
        "donot_use_mm_for_euclid_dist",
    ],
)
def test_compute_modes(count, mode, device):
    for width in (3, 12):
        x = draw(count, width)
        found, distances = ours.RadiusGraph(1.5, compute_mode=mode)(x.to(device), True)
        expected, usual = theirs.RadiusGraph(1.5, compute_mode=mode)(x.double(), True)
        assert_equal(found, expected)
        torch.testing.assert_close(distances.cpu(), usual.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spacing", [1.0, 0.1, 1 / 3])
@every_dtype
def test_points_on_the_edge_of_the_radius(spacing, dtype):
    """Rounding decides about them, as it does in DGL. No distance is said to be more than r."""
    for side in (8, 12):
        x = grid(side).to(dtype) * spacing
        found, distances = ours.RadiusGraph(spacing)(x, get_distances=True)
        assert_equal(found, theirs.RadiusGraph(spacing)(x))
        assert (distances <= spacing).all()


@both_searches
@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_no_distance_exceeds_the_radius(width, p, device):
    """Not by rounding either: what a cutoff makes of it may be NaN."""
    x = draw(200, width)
    for r in torch.cdist(x[:5], x[5:10], p=p).flatten().tolist():
        graph, distances = ours.RadiusGraph(r, p)(x.to(device), get_distances=True)
        assert graph.num_edges() > 0 and (distances <= r).all()


@pytest.mark.parametrize("count", [30, 200])
@pytest.mark.parametrize("p", [1, 1.5, 2, 3, float("inf")])
def test_gradients_of_distances(count, p, device):
    """DGL has them with self-loops only."""
    weights, found = None, []
    for lib, where in ((ours, device), (theirs, torch.device("cpu"))):
        x = draw(count, 3).double().to(where).requires_grad_()
        graph, distances = lib.RadiusGraph(0.8, p, self_loop=True)(x, get_distances=True)
        weights = draw(graph.num_edges(), 1).double() if weights is None else weights
        found.append(torch.autograd.grad((distances * weights.to(where)).sum(), x)[0].cpu())
    torch.testing.assert_close(*found)


def test_gradients_without_self_loops(device):
    """Of the second order too, as forces need them in training."""
    x = draw(12, 3).double().to(device).requires_grad_()

    def distances(points):
        return ours.RadiusGraph(1.5)(points, get_distances=True)[1]

    assert len(distances(x)) > 10
    assert torch.autograd.gradcheck(distances, x)
    assert torch.autograd.gradgradcheck(distances, x)
    nowhere = ours.RadiusGraph(1e-9)(x, get_distances=True)[1]
    assert nowhere.shape == (0, 1)
    assert torch.autograd.grad(nowhere.sum(), x)[0].eq(0).all()


def test_coincident_points_have_no_nan_gradients(device):
    x = torch.zeros(5, 3, device=device, requires_grad=True)
    distances = ours.RadiusGraph(1.0, self_loop=True)(x, get_distances=True)[1]
    assert torch.autograd.grad(distances.sum(), x)[0].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_within_a_radius(dtype, device):
    """DGL has none of them."""
    x = draw(200, 3).to(dtype)
    found, distances = ours.RadiusGraph(0.7)(x.to(device), get_distances=True)
    assert_equal(found, theirs.RadiusGraph(0.7)(x.float()))
    assert distances.dtype == dtype


def test_endless_radius(device):
    """It joins all points, not a point with itself, as it does in DGL."""
    x = draw(200, 3).to(device)
    graph = ours.RadiusGraph(float("inf"))(x)
    assert graph.num_edges() == 200 * 199
    assert ours.RadiusGraph(float("nan"))(x).num_edges() == 0


@pytest.mark.parametrize("algorithm", sorted({*ALGORITHMS} - {"bruteforce-sharemem"}))
@either_self
@pytest.mark.parametrize("k", [-1, 0, 1, 5, 9, 10, 20])
def test_number_of_neighbours(algorithm, exclude_self, k):
    """What is said about too many or too few, and the sizes that come of it."""
    x = draw(10, 3)
    for name, args in (("KNNGraph", (x,)), ("SegmentedKNNGraph", (x, [4, 6]))):
        call = {"algorithm": algorithm, "exclude_self": exclude_self}
        mine, other = (
            outcome(partial(getattr(lib, name)(k), *args, **call)) for lib in (ours, theirs)
        )
        assert mine == other
    mine, other = (outcome(partial(lib.KNNGraph(k), x[None], **call)) for lib in (ours, theirs))
    assert mine == other


@pytest.mark.parametrize(
    "call",
    [
        lambda lib, x: lib.KNNGraph(3)(x[:0]),
        lambda lib, x: lib.KNNGraph(3)(x[:0], "kd-tree"),
        lambda lib, x: lib.KNNGraph(3)(x[None][:0]),
        lambda lib, x: lib.KNNGraph(3)(x[None, :0]),
        lambda lib, x: lib.KNNGraph(3)(x[None, :0], "bruteforce"),
        lambda lib, x: lib.KNNGraph(3)(x, "bruteforce", "manhattan"),
        lambda lib, x: lib.KNNGraph(3)(x, "bruteforce", "Cosine"),
        lambda lib, x: lib.SegmentedKNNGraph(3)(x[:0], []),
        lambda lib, x: lib.SegmentedKNNGraph(3)(x, [4, 4]),
        lambda lib, x: lib.SegmentedKNNGraph(3)(x, [0, 10], "kd-tree"),
        lambda lib, x: lib.RadiusGraph(0)(x),
        lambda lib, x: lib.RadiusGraph(-1.5)(x),
        lambda lib, x: lib.RadiusGraph(1)(x[:0]),
        lambda lib, x: lib.RadiusGraph(1, p=-1)(x),
        lambda lib, x: lib.RadiusGraph(1, compute_mode="fast")(x),
    ],
)
def test_what_dgl_says(call):
    mine, other = (outcome(partial(call, lib, draw(10, 3))) for lib in (ours, theirs))
    assert mine == other


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: ours.KNNGraph(3)(x.tolist()), TypeError, "to be a tensor, got list"),
        (lambda x: ours.KNNGraph(3.0)(x), TypeError, "cannot be interpreted as an integer"),
        (lambda x: ours.KNNGraph(3)(x + 0j), TypeError, "of a real dtype"),
        (lambda x: ours.KNNGraph(3)(x[0]), ValueError, r"\(N, D\) or \(B, N, D\), got \(3,\)"),
        (lambda x: ours.KNNGraph(3)(x[None, None]), ValueError, "got"),
        (lambda x: ours.KNNGraph(3)(x, "bruteforce-blas", "manhattan"), dgl.DGLError, "manhattan"),
        (lambda x: ours.KNNGraph(3)(x, "quadtree"), dgl.DGLError, "Algorithm quadtree is not sup"),
        (lambda x: ours.SegmentedKNNGraph(3)(x[None], [10]), ValueError, r"\(N, D\), got"),
        (lambda x: ours.RadiusGraph(1)(x[None]), ValueError, r"\(N, D\), got"),
        (lambda x: ours.RadiusGraph(1)(x.long()), TypeError, "of a floating-point dtype"),
        (lambda x: ours.RadiusGraph(1)(x.tolist()), TypeError, "to be a tensor, got list"),
    ],
)
def test_what_we_say(call, error, text):
    with pytest.raises(error, match=text):
        call(draw(10, 3))
