"""The checker finds equal what is equal, and names what is not."""

from __future__ import annotations

import copy
import sys
import threading
from typing import Any

import dgl_flash.nn as ours

# isort: split
import dgl
import dgl.nn as theirs
import pytest
import torch
from torch import nn

from dgl_flash.checking import CheckError, check
from dgl_flash.checking import arguments as arguments_module
from dgl_flash.checking import twin as twin_module
from tests.checking import models

every_model = pytest.mark.parametrize("name", models.ON_NODES)


def same(*args: Any, **options: Any) -> None:
    result = check(*args, repeats=0, **options)
    assert result.ok, str(result)
    assert {part.kind for part in result.differences} == {"module", "output", "gradient"}


@every_model
def test_a_factory(name: str) -> None:
    same(models.ON_NODES[name], models.graph(), models.feat())


@every_model
@pytest.mark.parametrize("library", [theirs, ours], ids=["theirs", "ours"])
def test_a_finished_model_of_either_library(name: str, library: Any) -> None:
    model = models.ON_NODES[name](library)
    before = copy.deepcopy(model.state_dict())
    same(model, models.graph(), models.feat())
    layers = [part for part in model.modules() if type(part).__name__.endswith("Conv")]
    assert all(type(part) is getattr(library, type(part).__name__) for part in layers)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_factory_without_arguments() -> None:
    same(lambda: models.gat(ours), models.graph(), models.feat())


@pytest.mark.parametrize("finished", [False, True])
def test_relations(finished: bool) -> None:
    model = models.relgraph(theirs) if finished else models.relgraph
    graph = models.graph()
    same(model, graph, models.feat(), torch.arange(graph.num_edges()) % 3)


@pytest.mark.parametrize("library", [None, theirs, ours], ids=["factory", "theirs", "ours"])
def test_a_heterograph(library: Any) -> None:
    model = models.hetero if library is None else models.hetero(library)
    result = check(model, *models.users_and_items(), repeats=0)
    assert result.ok, str(result)
    names = [part.name for part in result.differences if part.kind == "module"]
    assert sorted(names[:3]) == [
        "mods.follows (GraphConv)",
        "mods.rated_by (SAGEConv)",
        "mods.rates (SAGEConv)",
    ]
    assert names[-2:] == ["the model (HeteroGraphConv) item", "the model (HeteroGraphConv) user"]


def test_a_model_of_layers_of_both_libraries() -> None:
    mixed = models.Two(theirs.GraphConv(models.WIDTH, 5), ours.GraphConv(5, 4))
    same(mixed, models.graph(), models.feat())


def test_blocks() -> None:
    graph = models.graph()
    second = dgl.to_block(dgl.in_subgraph(graph, [0, 1, 2]), torch.tensor([0, 1, 2]))
    first = dgl.to_block(
        dgl.in_subgraph(graph, second.srcdata[dgl.NID]), second.srcdata[dgl.NID].clone()
    )
    feat = models.feat()[first.srcdata[dgl.NID]]
    same(models.two_sages, [first, second], feat)


def test_features_that_the_graph_holds_are_widened_for_the_float64_run() -> None:
    class Weighted(nn.Module):
        def __init__(self, lib: Any) -> None:
            super().__init__()
            self.conv = lib.GraphConv(models.WIDTH, 4)

        def forward(self, graph: Any, feat: torch.Tensor) -> torch.Tensor:
            return self.conv(graph, feat, edge_weight=graph.edata["w"])

    graph = models.graph()
    graph.edata["w"] = 0.5 + torch.rand(graph.num_edges())
    result = check(Weighted, graph, models.feat(), repeats=0)
    assert result.ok
    assert any("its float64 result" in note for note in result.notes)
    assert graph.edata["w"].dtype == torch.float32


def test_float64_is_compared_directly() -> None:
    result = check(models.gat, models.graph(), models.feat(), dtype=torch.float64, repeats=0)
    assert result.ok
    assert any("nothing is finer than float64" in note for note in result.notes)
    assert all(part.allowed < 1e-9 for part in result.differences)


def test_dropout_is_off_in_training_mode() -> None:
    result = check(models.gatv2, models.graph(), models.feat(), train=True, repeats=1)
    assert result.ok, str(result)
    assert "dropout was off in the comparison and on in the measurements" in result.notes


def test_keyword_arguments() -> None:
    def make(lib: Any) -> nn.Module:
        return lib.GraphConv(models.WIDTH, 4)

    graph = models.graph()
    weights = {"edge_weight": 0.5 + torch.rand(graph.num_edges())}
    result = check(make, graph, models.feat(), keywords=weights, repeats=0)
    assert result.ok, str(result)
    assert "input.edge_weight" in {part.name for part in result.differences}


def test_a_layer_that_is_off_is_named() -> None:
    result = check(models.with_second(models.OffByALittle), models.graph(), models.feat())
    assert not result.ok
    first = result.first_difference
    assert first is not None
    assert (first.kind, first.name) == ("module", "layers.1 (OffByALittle)")
    assert first.absolute == pytest.approx(1e-2, rel=1e-3)
    assert first.error > first.allowed > 0
    assert first.absolute / 3 < first.relative < 3 * first.absolute
    assert str(result).startswith("DIFFERENT: look first at module layers.1 (OffByALittle): ")
    # What comes before it is in order.
    assert [part.ok for part in result.differences if part.name.startswith("layers.0 ")] == [True]


def test_a_wrong_gradient_is_named_by_the_layer_called_last() -> None:
    result = check(models.with_second(models.WrongGradient), models.graph(), models.feat())
    assert not result.ok
    assert all(part.ok for part in result.differences if part.kind != "gradient")
    assert {part.name for part in result.differences if not part.ok} >= {"layers.0.weight"}
    first = result.first_difference
    assert first is not None and first.name.startswith("layers.1.")
    assert first.relative == pytest.approx(0.01, rel=0.05)


def test_a_missing_key_of_the_checkpoint_is_named() -> None:
    result = check(models.with_second(models.WithoutBias), models.graph(), models.feat())
    assert not result.ok
    assert result.state == ("layers.1.bias: missing in dgl_flash.nn",)
    assert "state_dict: layers.1.bias: missing in dgl_flash.nn" in str(result)


def test_other_shapes_of_weights_are_named() -> None:
    def make(lib: Any) -> nn.Module:
        return lib.GraphConv(models.WIDTH, 4 if lib is theirs else 5)

    result = check(make, models.graph(), models.feat(), repeats=0)
    assert "weight: (6, 4) torch.float32 in dgl.nn, (6, 5) torch.float32" in result.state[0]
    assert result.first_difference is not None
    assert "(30, 5) torch.float32 instead of (30, 4)" in result.first_difference.problem


def test_a_failure_of_ours_alone_is_a_difference() -> None:
    result = check(models.with_second(models.Failing), models.graph(), models.feat())
    assert not result.ok
    assert result.failure == "NotImplementedError: this option"
    assert str(result).startswith("DIFFERENT: only dgl_flash.nn fails, with NotImplementedError")


def test_times_and_memory() -> None:
    result = check(models.gat, models.graph(), models.feat(), repeats=2)
    for side in result.sides:
        assert side.cost is not None
        assert side.cost.forward > 0 and side.cost.training > 0 and side.cost.memory > 0
    labels = [row[0] for row in result.rows()]
    assert labels == ["device", "forward", "forward + backward", "peak memory"]
    html = result._repr_html_()
    assert html.startswith("<pre>the same: 4 modules, 1 output, ")


def test_random_state_is_left_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    check(models.gat, models.graph(), models.feat(), repeats=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_that_keeps_what_it_has_computed() -> None:
    same(lambda lib: lib.SGConv(models.WIDTH, 4, 2, cached=True), models.graph(), models.feat())


class Derived(ours.GATConv):
    pass


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: nn.Sequential(Derived(6, 4, 1)), "0 (Derived) derives from dgl_flash.nn"),
        (lambda: ours.NNConv(6, 4, nn.Linear(2, 24)), "stores its settings differently"),
        (lambda: ours.SparseMHA(6, 2), "(SparseMHA) has no twin in dgl.nn; pass a function"),
        (lambda: nn.Linear(6, 4), "Linear has no layer of dgl.nn or dgl_flash.nn"),
        (lambda: "text", "gave str instead of an nn.Module"),
        (models.Two, "Two needs 2 arguments (first, second); pass a function of one"),
        (3, "expected an nn.Module or a function that builds one, got int"),
        (lambda lib: lib.GraphConv(7, 4), "fails with dgl.nn already (RuntimeError"),
    ],
    ids=["derived", "settings", "twin", "plain", "text", "arguments", "number", "width"],
)
def test_what_cannot_be_checked(model: Any, message: str) -> None:
    with pytest.raises(CheckError) as raised:
        check(model, models.graph(), models.feat())
    assert message in str(raised.value)


def test_a_model_that_cannot_be_copied() -> None:
    model = models.gat(ours)
    model.lock = threading.Lock()
    with pytest.raises(CheckError, match=r"Two cannot be copied .* pass a function that builds"):
        check(model, models.graph(), models.feat())


@pytest.mark.parametrize("finished", [False, True])
def test_a_model_that_keeps_its_namespace(finished: bool) -> None:
    def make(lib: Any) -> nn.Module:
        model = models.gat(lib)
        model.library = lib
        return model

    same(make(ours) if finished else make, models.graph(), models.feat())


@pytest.mark.parametrize("library", [theirs, ours], ids=["theirs", "ours"])
def test_a_factory_that_ignores_the_namespace(library: Any) -> None:
    pair = twin_module.make_pair(lambda lib: models.gat(library), seed=0)
    assert type(pair.theirs.layers[0]) is theirs.GATConv
    assert type(pair.ours.layers[0]) is ours.GATConv


def test_a_dgl_that_is_redirected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl.nn", ours)
    with pytest.raises(CheckError, match=r"dgl.nn stands for dgl_flash.nn in this process"):
        check(models.gat, models.graph(), models.feat())


def test_a_dgl_without_cuda_runs_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = dgl._ffi.function
    for names, expected in (([], False), (["device_api.cuda"], True)):
        monkeypatch.setattr(functions, "list_global_func_names", lambda names=names: names)
        assert arguments_module.dgl_runs_on(torch.device("cuda", 0)) == expected
        assert arguments_module.dgl_runs_on(torch.device("cpu"))


def test_wrong_arguments() -> None:
    graph, feat = models.graph(), models.feat()
    with pytest.raises(CheckError, match="unknown device 'tpu'"):
        check(models.gat, graph, feat, device="tpu")
    with pytest.raises(CheckError, match="there is no device cuda:99: torch sees"):
        check(models.gat, graph, feat, device="cuda:99")
    with pytest.raises(CheckError, match="repeats must not be negative, got -1"):
        check(models.gat, graph, feat, repeats=-1)
    import dgl_flash

    with pytest.raises(CheckError, match="pass a DGLGraph"):
        check(models.gat, dgl_flash.graph(([0], [0])), feat)


def test_without_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (twin_module, arguments_module):
        monkeypatch.setattr(module, "import_dgl", lambda: (None, "DGL is not installed"))
    with pytest.raises(CheckError, match=r'not installed; a check needs it: pip install "dgl_f'):
        check(models.gat, models.graph(), models.feat())


@pytest.mark.gpu
@every_model
@pytest.mark.filterwarnings("ignore::dgl_flash.errors.FallbackWarning")
def test_on_a_gpu(name: str) -> None:
    result = check(models.ON_NODES[name], models.graph(), models.feat(), device="cuda", repeats=1)
    assert result.ok, str(result)
    assert result.sides[1].device == torch.cuda.get_device_name()
