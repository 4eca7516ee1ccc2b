"""GroupRevRes: grouped reversible residual connections around any layer."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash.nn.common import as_floats
from dgl_flash.nn.conv.reversible import Call, compose
from dgl_flash.structure import is_tracing


class GroupRevRes(nn.Module):
    r"""Grouped reversible residual connections, with the interface of ``dgl.nn.GroupRevRes``.

    The features are split into :math:`C` groups :math:`x_1, \dots, x_C` of columns, and the module
    is copied for each:

    .. math::
        y_0 = \sum_{i=2}^{C} x_i, \qquad y_i = x_i + f_i(g, y_{i-1}, u_i), \qquad
        y = y_1 \, \Vert \dots \Vert \, y_C

    where :math:`u_i` is the group's part of further arguments. As :math:`x` follows from :math:`y`,
    training keeps no activation but the output of the last layer of a stack, whatever its depth.

    Parameters
    ----------
    gnn_module : nn.Module
        Called with graph, features and further arguments; it must return features of the same
        shape. It becomes the module of the first group, the others get copies.
    groups : int
        Number of groups. Default 2.

    Attributes
    ----------
    gnn_modules : nn.ModuleList
        The module of each group.

    Notes
    -----
    Source: G. Li, M. Müller, B. Ghanem, V. Koltun, "Training Graph Neural Networks with 1000
    Layers", ICML 2021, https://arxiv.org/abs/2106.07476.

    **Fused path.** That of the wrapped module. The forward pass keeps no intermediate result, in
    particular none of the size of the edges. The backward pass rebuilds the input group by group
    with one run of each module, whose gradient is taken on the way, so that the intermediate
    results of one group exist at a time.

    **Differences to DGL.** DGL frees the storage of the features passed to it in the forward pass,
    and that of the result in the backward pass, also if they are used elsewhere, and also in
    evaluation, where nothing brings them back. Here nothing is freed by force: the layer just keeps
    no reference to its input, and drops the one to its output when another ``GroupRevRes`` takes
    that as input. So ``h = layer(g, h)`` frees as much as DGL, ``out = layer(g, h) + h`` is right,
    and the features of the user keep their values. DGL runs the module three times in a training
    step, with other random numbers each time, so that dropout gives wrong gradients, and batch
    normalisation counts three batches. Here the second run draws the same numbers, leaves the
    generators and the buffers as they were and runs under the same autocast.
    ``torch.autograd.grad`` and ``retain_graph=True`` work. Parameters that were changed before the
    backward pass are an error. Arguments that are no tensors are passed to every group as they are.

    Second derivatives are an error. Under ``torch.compile`` and while a CUDA graph is captured the
    module is an ordinary composition that keeps its intermediate results.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GraphConv, GroupRevRes
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> layer = GroupRevRes(GraphConv(4, 4), groups=2)
    >>> layer(graph, torch.randn(4, 8)).shape
    torch.Size([4, 8])
    """

    def __init__(self, gnn_module: nn.Module, groups: int = 2) -> None:
        super().__init__()
        self.gnn_modules = nn.ModuleList(
            [gnn_module if i == 0 else deepcopy(gnn_module) for i in range(groups)]
        )
        self.groups = groups

    def forward(self, g: Any, x: Tensor, *args: Any) -> Tensor:
        r"""Apply the modules.

        Parameters
        ----------
        g : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph, or what else the modules take first.
        x : Tensor
            (N, \*, D), D a multiple of the number of groups. Integers are turned into floats.
        *args
            Further arguments of the modules, e.g. edge features. Of a tensor each group gets its
            part of the last dimension.

        Returns
        -------
        Tensor
            (N, \*, D)

        Raises
        ------
        TypeError
            If the features are no tensor.
        ValueError
            If the features or a further argument cannot be split into that many parts.
        RuntimeError
            If the parts of the features differ in width. In the backward pass, if a parameter, an
            argument or the result was changed.
        """
        if not isinstance(x, Tensor):
            raise TypeError(
                f"GroupRevRes: expected `x` to be a tensor, got {type(x).__name__}; did you swap "
                "`g` and `x`? The graph comes first"
            )
        x = as_floats(x)  # integers could not be rebuilt
        call = self._reversible_call(g, x, args)
        if call is None:
            return compose(self.gnn_modules, g, x, args)
        return call(x)

    def _reversible_call(self, g: Any, x: Tensor, args: tuple[Any, ...]) -> Call | None:
        """Make a call to be differentiated, or None where there is nothing to differentiate."""
        if not torch.is_grad_enabled() or is_tracing() or _is_capturing():
            return None
        call = Call(self.gnn_modules, g, x, args)
        needs_grad = x.requires_grad or any(value.requires_grad for value in call.inputs)
        return call if needs_grad else None


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
