"""What the layers named after cuGraph share. They run on our kernels and need no RAPIDS package."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash.nn.common import read_graph
from dgl_flash.structure import GraphStructure


class CuGraphBaseConv(nn.Module):
    """Base of the layers with the interfaces of DGL's layers on cugraph-ops."""

    def __init__(self) -> None:
        super().__init__()
        # DGL's place for a copy of the offsets; nothing is kept here.
        self._cached_offsets_fg: Tensor | None = None

    def reset_parameters(self) -> None:
        """Draw the parameters anew; each layer says how.

        Raises
        ------
        NotImplementedError
            Here.
        """
        raise NotImplementedError

    def forward(self, *args: Any) -> Any:
        """Compute; each layer says what.

        Parameters
        ----------
        *args
            Graph, features and what else a layer takes.

        Raises
        ------
        NotImplementedError
            Here.
        """
        raise NotImplementedError

    def pad_offsets(self, offsets: Tensor, size: int) -> Tensor:
        """Append rows without entries to compressed rows. Our layers do not need it.

        Parameters
        ----------
        offsets : Tensor
            (N + 1,), where each row starts.
        size : int
            How long the result is, at least N + 1.

        Returns
        -------
        Tensor
            (size,), a new tensor.

        Raises
        ------
        RuntimeError
            If ``size`` is too small.
        """
        return torch.cat([offsets, offsets[-1:].repeat(size - offsets.numel())])


def read_inputs(layer: nn.Module, g: Any, feat: Any) -> GraphStructure:
    """Read the graph, and check that the features of the destinations are the first rows.

    Parameters
    ----------
    layer : nn.Module
        Who asks; errors start with its class.
    g : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        The graph.
    feat : Tensor
        (N_src, D)

    Returns
    -------
    GraphStructure
        On the device of the features.

    Raises
    ------
    TypeError
        If ``g`` is no graph or ``feat`` no tensor.
    ValueError
        If there is not one row a source, or there are more destinations than sources.
    """
    struct = read_graph(layer, g, feat)
    name = type(layer).__name__
    if not isinstance(feat, Tensor):
        raise TypeError(
            f"{name}: expected `feat` to be one tensor, got a tuple; pass the features of the "
            f"sources, of which the first rows are the destinations"
        )
    if feat.dim() != 2 or feat.shape[0] != struct.num_src:
        raise ValueError(
            f"{name}: expected `feat` of shape (N_src, D) = ({struct.num_src}, D), got "
            f"{tuple(feat.shape)}; pass a row for each source"
        )
    if struct.num_dst > struct.num_src:
        raise ValueError(
            f"{name}: expected a graph whose destinations are its first sources, got "
            f"{struct.num_src} sources and {struct.num_dst} destinations; pass a block, or use "
            f"the layer without CuGraph in its name"
        )
    return struct
