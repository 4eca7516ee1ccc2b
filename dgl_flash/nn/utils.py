"""Modules that are no convolutions, under the file name they have in DGL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dgl_flash import ops
from dgl_flash.errors import dgl_warning
from dgl_flash.nn.common import degree_scale, read_graph, require_one_node_set
from dgl_flash.nn.missing import attribute_of
from dgl_flash.structure import Graph, GraphStructure
from dgl_flash.structure.dgl_reader import is_dgl_graph

__all__ = ["JumpingKnowledge", "LabelPropagation", "Sequential", "WeightBasis"]

__getattr__ = attribute_of(__name__)


class Sequential(nn.Sequential):
    r"""Layers one after the other, with the interface of ``dgl.nn.Sequential``.

    .. math::
        h^{(l+1)} = f_l(G_l, h^{(l)})

    on one graph, or on a graph for each layer.

    Parameters
    ----------
    *args : nn.Module, or one OrderedDict of them
        The layers, as for ``torch.nn.Sequential``.

    Notes
    -----
    Source: M. Wang et al., "Deep Graph Library: A Graph-Centric, Highly-Performant Package for
    Graph Neural Networks", 2019, https://arxiv.org/abs/1909.01315.

    Of a list of graphs and the layers, the shorter decides how many layers run, as in DGL.

    **Fused path.** That of the layers; nothing is done in between.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GraphConv, Sequential
    >>> graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> model = Sequential(GraphConv(4, 8), GraphConv(8, 2))
    >>> model(graph, torch.randn(3, 4)).shape
    torch.Size([3, 2])
    >>> model([graph, graph], torch.randn(3, 4)).shape
    torch.Size([3, 2])
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)

    def forward(self, graph: Any, *feats: Any) -> Any:
        """Apply the layers.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph, or a list of them
            The graph of all layers, or one graph for each.
        *feats
            What the first layer takes after the graph. A tuple that a layer returns is handed to
            the next one as several arguments.

        Returns
        -------
        Any
            What the last layer returns; without layers the tuple ``feats``.

        Raises
        ------
        TypeError
            If ``graph`` is neither a graph nor a list.
        """
        if isinstance(graph, list):
            graphs = graph
        elif isinstance(graph, (Graph, GraphStructure)) or is_dgl_graph(graph):
            graphs = [graph] * len(self)
        else:
            # Word for word DGL's.
            raise TypeError(
                "The first argument of forward must be a DGLGraph or a list of DGLGraph s"
            )
        found: Any = feats
        for of_layer, layer in zip(graphs, self, strict=False):
            found = layer(of_layer, *(found if isinstance(found, tuple) else (found,)))
        return found


class WeightBasis(nn.Module):
    r"""Weights that share a basis, with the interface of ``dgl.nn.WeightBasis``.

    .. math::
        W_o = \sum_{b=1}^{B} a_{ob} V_b

    Parameters
    ----------
    shape : tuple of int
        Shape of each weight, of one dimension or more.
    num_bases : int
        B.
    num_outputs : int
        Number of weights. Not more than B are allowed but save nothing, which is warned of.

    Attributes
    ----------
    weight : Parameter
        :math:`V`, (B, \*shape).
    w_comp : Parameter
        :math:`a`, (num_outputs, B).

    Notes
    -----
    Source: M. Schlichtkrull, T. N. Kipf, P. Bloem, R. van den Berg, I. Titov, M. Welling,
    "Modeling Relational Data with Graph Convolutional Networks", ESWC 2018,
    https://arxiv.org/abs/1703.06103.

    **Fused path.** There is none: it is one product of two matrices. :class:`TypedLinear` with
    ``regularizer="basis"`` holds the same parameters and multiplies rows by them.

    Examples
    --------
    >>> from dgl_flash.nn import WeightBasis
    >>> WeightBasis((4, 5), num_bases=2, num_outputs=3)().shape
    torch.Size([3, 4, 5])
    """

    def __init__(self, shape: Sequence[int], num_bases: int, num_outputs: int) -> None:
        super().__init__()
        self.shape = shape
        self.num_bases = num_bases
        self.num_outputs = num_outputs
        if num_outputs <= num_bases:
            dgl_warning("The number of weight outputs should be larger than the number of bases.")
        gain = nn.init.calculate_gain("relu")
        self.weight = nn.Parameter(torch.empty(num_bases, *shape))
        nn.init.xavier_uniform_(self.weight, gain=gain)
        self.w_comp = nn.Parameter(torch.empty(num_outputs, num_bases))
        nn.init.xavier_uniform_(self.w_comp, gain=gain)

    def forward(self) -> Tensor:
        r"""Compose the weights.

        Returns
        -------
        Tensor
            (num_outputs, \*shape)
        """
        return (self.w_comp @ self.weight.flatten(1)).view(self.num_outputs, *self.shape)


class JumpingKnowledge(nn.Module):
    r"""Combine the outputs of all layers, with the interface of ``dgl.nn.JumpingKnowledge``.

    .. math::
        h_v^{(1)} \Vert \dots \Vert h_v^{(T)} \;\text{(cat)}, \qquad
        \max_t h_v^{(t)} \;\text{(max)}, \qquad
        \sum_t \alpha_v^{(t)} h_v^{(t)} \;\text{(lstm)}

    where :math:`\alpha_v` is the softmax over the layers of a linear map of the states of an LSTM
    that reads them in both directions.

    Parameters
    ----------
    mode : {"cat", "max", "lstm"}
        How to combine; ``"cat"`` by default.
    in_feats : int, optional
        D, the width of each output; needed with ``"lstm"``.
    num_layers : int, optional
        T; needed with ``"lstm"``, whose state is T D / 2 wide.

    Attributes
    ----------
    lstm : nn.LSTM
        With ``"lstm"`` only.
    att : nn.Linear
        From the states to a score; with ``"lstm"`` only.

    Raises
    ------
    AssertionError
        If ``mode`` is unknown, or ``"lstm"`` lacks its sizes.

    Notes
    -----
    Source: K. Xu, C. Li, Y. Tian, T. Sonobe, K. Kawarabayashi, S. Jegelka, "Representation
    Learning on Graphs with Jumping Knowledge Networks", ICML 2018,
    https://arxiv.org/abs/1806.03536.

    The first of several equal maxima gets the gradient.

    **Fused path.** There is none: no edge is read. It is plain torch, with one stacked copy of the
    outputs for ``"max"`` and ``"lstm"``, and the LSTM of cuDNN.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import JumpingKnowledge
    >>> outputs = [torch.zeros(3, 4), torch.ones(3, 4)]
    >>> JumpingKnowledge()(outputs).shape
    torch.Size([3, 8])
    >>> JumpingKnowledge("lstm", in_feats=4, num_layers=2)(outputs).shape
    torch.Size([3, 4])
    """

    def __init__(
        self, mode: str = "cat", in_feats: int | None = None, num_layers: int | None = None
    ) -> None:
        super().__init__()
        if mode not in ("cat", "max", "lstm"):
            raise AssertionError(f"Expect mode to be 'cat', or 'max' or 'lstm', got {mode}")
        self.mode = mode
        if mode == "lstm":
            if in_feats is None:
                raise AssertionError("in_feats is required for lstm mode")
            if num_layers is None:
                raise AssertionError("num_layers is required for lstm mode")
            hidden_size = num_layers * in_feats // 2
            self.lstm = nn.LSTM(in_feats, hidden_size, bidirectional=True, batch_first=True)
            self.att = nn.Linear(2 * hidden_size, 1)

    def reset_parameters(self) -> None:
        """Draw the LSTM and the linear map as torch does, if there are any."""
        if self.mode == "lstm":
            self.lstm.reset_parameters()
            self.att.reset_parameters()

    def forward(self, feat_list: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
        r"""Combine the outputs of the layers.

        Parameters
        ----------
        feat_list : list or tuple of Tensor
            (N, D) each; with ``"cat"`` (N, \*), which may differ in width.

        Returns
        -------
        Tensor
            (N, D), or with ``"cat"`` (N, sum of the widths).

        Raises
        ------
        RuntimeError
            If shapes or dtypes do not fit.
        ValueError
            If ``feat_list`` is empty; with ``"max"`` and ``"lstm"`` that is a RuntimeError.
        TypeError
            If ``feat_list`` is no list, or holds no tensors.
        """
        if self.mode == "cat":
            return torch.cat(feat_list, dim=-1)
        if self.mode == "max":
            return torch.stack(feat_list).max(dim=0).values
        stacked = torch.stack(feat_list, dim=1)  # (N, T, D)
        states, _ = self.lstm(stacked)
        alpha = torch.softmax(self.att(states).squeeze(-1), dim=-1)  # (N, T)
        return (stacked * alpha.unsqueeze(-1)).sum(dim=1)


class LabelPropagation(nn.Module):
    r"""Label propagation, with the interface of ``dgl.nn.LabelPropagation``.

    .. math::
        Y^{(t+1)} = \alpha \hat A Y^{(t)} + (1 - \alpha) Y^{(0)}

    where :math:`Y^{(0)}` has the given labels, and 0 for the nodes that are masked out.

    Parameters
    ----------
    k : int
        Number of steps.
    alpha : float
        :math:`\alpha` in [0, 1].
    norm_type : {"sym", "row"}
        :math:`\hat A = D_{in}^{-1/2} A D_{out}^{-1/2}` (default) or :math:`D_{in}^{-1} A`. A degree
        of 0 counts as 1.
    clamp : bool
        Clip to [0, 1] after each step. Default True.
    normalize : bool
        Divide each row by the sum of its absolute values after each step. Default False.
    reset : bool
        Put the given labels back after each step. Default False.

    Notes
    -----
    Source: X. Zhu, Z. Ghahramani, "Learning from Labeled and Unlabeled Data with Label
    Propagation", technical report CMU-CALD-02-107, 2002,
    https://mlg.eng.cam.ac.uk/zoubin/papers/CMU-CALD-02-107.pdf.

    **Fused path.** The sum over the neighbours is one CUDA kernel a step (``dgl_flash.ops.spmm``)
    with :math:`\alpha` and both normalisations in it; no tensor of the size of the edges is made.
    On the CPU plain torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import LabelPropagation
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> propagate = LabelPropagation(k=5, alpha=0.5, clamp=False, normalize=True)
    >>> labels, known = torch.tensor([0, 1, 2, 0]), torch.tensor([True, True, True, False])
    >>> propagate(graph, labels, known).shape
    torch.Size([4, 3])
    """

    def __init__(
        self,
        k: int,
        alpha: float,
        norm_type: str = "sym",
        clamp: bool = True,
        normalize: bool = False,
        reset: bool = False,
    ) -> None:
        super().__init__()
        self.k = k
        self.alpha = alpha
        self.norm_type = norm_type
        self.clamp = clamp
        self.normalize = normalize
        self.reset = reset

    def forward(self, g: Any, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """Propagate labels.

        Parameters
        ----------
        g : DGLGraph or dgl_flash.Graph
            A homogeneous graph; it may stay on the CPU while the labels are on a GPU.
        labels : Tensor
            (N,) or (N, 1), int64: classes. Or (N, C): one-hot classes, or C labels each; of any
            dtype, it becomes float32.
        mask : Tensor, optional
            (N,), bool: the nodes whose labels are given. Default: all.

        Returns
        -------
        Tensor
            (N, C), float32.

        Raises
        ------
        ValueError
            If ``norm_type`` is unknown, or the labels do not fit the graph.
        IndexError
            If the mask does not fit the labels.
        RuntimeError
            If classes are negative or no int64.
        DGLError
            If the graph has two sets of nodes.
        TypeError
            If ``g`` is no graph.
        """
        struct = read_graph(self, g, labels)
        if labels.dim() > 1 and labels.shape[1] > 1:
            labels = labels.to(torch.float32)
        else:
            labels = functional.one_hot(labels.view(-1)).to(torch.float32)
        start = labels
        if mask is not None:
            start = torch.zeros_like(labels)
            start[mask] = labels[mask]
        if self.norm_type not in ("sym", "row"):
            raise ValueError(f"Expect norm_type to be 'sym' or 'row', got {self.norm_type}")
        require_one_node_set(self, g)
        symmetric = self.norm_type == "sym"
        src_scale = degree_scale(struct, "src", -0.5, labels) if symmetric else None
        dst_scale = degree_scale(struct, "dst", -0.5 if symmetric else -1, labels)
        dst_scale = self.alpha * dst_scale
        kept = (1 - self.alpha) * start
        found = start
        for _ in range(self.k):
            found = kept + ops.spmm(struct, found, src_scale=src_scale, dst_scale=dst_scale)
            if self.clamp:
                found = found.clamp_(0.0, 1.0)
            if self.normalize:
                found = functional.normalize(found, p=1)
            if self.reset:
                found[mask] = labels[mask]
        return found
