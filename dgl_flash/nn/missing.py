"""The names of ``dgl.nn`` that are not here yet, and what to say to those who ask for them."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

# Public names of dgl.nn in DGL 2.1.0 without its modules.
_NAMES = """
    AGNNConv APPNPConv AtomicConv AvgPooling BiasedMHA CFConv ChebConv CuGraphGATConv
    CuGraphRelGraphConv CuGraphSAGEConv DGNConv DeepWalk DegreeEncoder DenseChebConv DenseGraphConv
    DenseSAGEConv DotGatConv EGATConv EGNNConv EGTLayer EdgeConv EdgeGATConv EdgePredictor
    EdgeWeightNorm GATConv GATv2Conv GCN2Conv GINConv GINEConv GMMConv GNNExplainer GatedGCNConv
    GatedGraphConv GlobalAttentionPooling GraphConv GraphormerLayer GroupRevRes HGTConv
    HeteroEmbedding HeteroGNNExplainer HeteroGraphConv HeteroLinear HeteroPGExplainer
    HeteroSubgraphX JumpingKnowledge KNNGraph LabelPropagation LapPosEncoder MaxPooling
    MetaPath2Vec NNConv NodeEmbedding PGExplainer PNAConv PathEncoder RadiusGraph RelGraphConv
    SAGEConv SGConv SegmentedKNNGraph Sequential Set2Set SetTransformerDecoder
    SetTransformerEncoder SortPooling SpatialEncoder SpatialEncoder3d SubgraphX SumPooling TAGConv
    TWIRLSConv TWIRLSUnfoldingAndAttention TransE TransR TypedLinear WeightAndSum WeightBasis
    edge_softmax expand_as_pair knn_graph pairwise_squared_distance radius_graph
    segmented_knn_graph
"""

# Modules of dgl.nn.pytorch in DGL 2.1.0, relative to it.
_MODULES = """
    conv conv.agnnconv conv.appnpconv conv.atomicconv conv.cfconv conv.chebconv conv.cugraph_base
    conv.cugraph_gatconv conv.cugraph_relgraphconv conv.cugraph_sageconv conv.densechebconv
    conv.densegraphconv conv.densesageconv conv.dgnconv conv.dotgatconv conv.edgeconv
    conv.edgegatconv conv.egatconv conv.egnnconv conv.gatconv conv.gatedgcnconv
    conv.gatedgraphconv conv.gatv2conv conv.gcn2conv conv.ginconv conv.gineconv conv.gmmconv
    conv.graphconv conv.grouprevres conv.hgtconv conv.nnconv conv.pnaconv conv.relgraphconv
    conv.sageconv conv.sgconv conv.tagconv conv.twirlsconv
    explain explain.gnnexplainer explain.pgexplainer explain.subgraphx
    factory glob
    gt gt.biased_mha gt.degree_encoder gt.egt gt.graphormer gt.lap_pos_encoder gt.path_encoder
    gt.spatial_encoder
    hetero linear
    link link.edgepred link.transe link.transr
    network_emb softmax sparse_emb utils
"""

DGL_NAMES = frozenset(_NAMES.split())
DGL_MODULES = frozenset(_MODULES.split())
_PACKAGE = "dgl_flash.nn"
# The class of DGL itself, which is imported when it is asked for: not in `__all__`, since a star
# import would ask for it.
LAZY = {"NodeEmbedding": f"{_PACKAGE}.sparse_emb"}


def attribute_of(module: str) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a module that lacks names of ``dgl.nn``, or imports them late.

    Parameters
    ----------
    module : str
        Name of the module.

    Returns
    -------
    callable
        Raises AttributeError, with a remedy for the names that DGL has.
    """

    def __getattr__(name: str) -> Any:
        if name in LAZY and module in (_PACKAGE, f"{_PACKAGE}.pytorch"):
            return getattr(importlib.import_module(LAZY[name]), name)
        text = _not_yet(module, name)
        raise AttributeError(text or f"module {module!r} has no attribute {name!r}")

    return __getattr__


def install() -> None:
    """Let ``from dgl_flash.nn import X`` fail with the same text as ``dgl_flash.nn.X``.

    Python replaces the text of a module's AttributeError by its own "cannot import name", but
    first it looks for a submodule ``X``, and there a finder may speak. Ours stands last, and
    answers for nothing but missing parts of ``dgl_flash.nn``.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        module, _, name = fullname.rpartition(".")
        if fullname.startswith(f"{_PACKAGE}."):
            text = _not_yet(module, name)
            if text is not None:
                raise ImportError(text, name=fullname)
        return None


def _not_yet(module: str, name: str) -> str | None:
    """Say where to find ``module.name`` meanwhile, if DGL has it."""
    below = f"{module}.{name}".removeprefix(f"{_PACKAGE}.").removeprefix("pytorch.")
    if name in DGL_NAMES:
        there = f"dgl.nn.{name}"
    elif below in DGL_MODULES:
        there = f"dgl.nn.pytorch.{below}"
    else:
        return None
    return (
        f"{module}.{name} is not in dgl_flash yet; {there} can be used meanwhile, "
        f"together with the layers of dgl_flash"
    )
