"""What DGL 2.1.0 cannot do, with a current torch and NumPy, works here.

``EGATConv(bias=False)``, the one constructor that fails there, is in test_egatconv.py; how the
searches of SubgraphX go is in test_explain_subgraphx.py.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.graphs import no_nodes
from tests.nn.common import draw, every_idtype, ours, raised, theirs
from tests.nn.explain_models import (
    WIDTH,
    Model,
    TypedModel,
    models,
    plain_graph,
    typed_features,
    typed_graph,
)
from tests.nn.layers import LAYERS
from tests.nn.tutorial import TUTORIAL

# DGL's, which frees storages; and about graphs without edges.
pytestmark = [
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*does not contain valid edges"),
]
FEW = {"num_hops": 2, "num_rollouts": 2, "num_child": 3, "shapley_steps": 2}
# DGL's reshape nothing to a width that they leave open, or look for messages that never were.
NOT_WITHOUT_NODES = {"AtomicConv", "DGNConv", "EdgeGATConv", "GATConv", "GATv2Conv"}
NOT_WITHOUT_NODES |= {"GatedGraphConv", "PNAConv"}
NAN_WITHOUT_NODES = {"AvgPooling"}  # 0 / 0
ON_NODES = [name for name, layer in sorted(LAYERS.items()) if layer.first is not None]


@pytest.mark.parametrize("name", ON_NODES)
@every_idtype
def test_graphs_without_nodes(name, idtype, device):
    """Nothing comes out, or what a readout says of nothing; gradients are 0, and none is NaN."""
    layer, graph = LAYERS[name], no_nodes(idtype)
    inputs = layer.inputs(graph)
    module = layer.make(allow_zero_in_degree=True)
    found = layer.run(module, graph, inputs, device, torch.float32)
    assert all(value.isfinite().all() for value in found.values())
    if name.split()[0] in TUTORIAL:
        return
    other = layer.make(theirs, allow_zero_in_degree=True)
    call = partial(layer.run, other, graph, inputs, "cpu", torch.float32)
    if name in NOT_WITHOUT_NODES:
        assert isinstance(raised(call), (RuntimeError, KeyError))
        return
    usual = call()
    if name in NAN_WITHOUT_NODES:
        assert usual["out0"].isnan().all()
        return
    assert found.keys() == usual.keys()
    for key, value in found.items():
        torch.testing.assert_close(value.cpu(), usual[key], msg=key)


def test_the_constructor_that_fails():
    assert isinstance(raised(partial(theirs.EGATConv, 4, 5, 3, 6, 2, bias=False)), AttributeError)
    assert ours.EGATConv(4, 5, 3, 6, 2, bias=False).bias is None


@every_idtype
@pytest.mark.parametrize("name", ["SubgraphX", "HeteroSubgraphX"])
def test_arrays_of_one_number_are_no_numbers(name, idtype):
    """NumPy takes them for numbers no longer; in between it warned."""
    if name == "SubgraphX":
        graph, feat = plain_graph(idtype), draw(14, WIDTH)
        pair = models(Model, True)
    else:
        graph = typed_graph(idtype)
        feat = typed_features(graph)
        pair = models(TypedModel, True, graph.canonical_etypes)
    explainers = [
        getattr(library, name)(model, **FEW)
        for library, model in zip((ours, theirs), pair, strict=True)
    ]
    nodes = explainers[0].explain_graph(graph, feat, 1)
    for ids in nodes.values() if isinstance(nodes, dict) else [nodes]:
        assert ids.dtype == idtype
    error = raised(lambda: explainers[1].explain_graph(graph, feat, 1))
    assert isinstance(error, (TypeError, DeprecationWarning))
