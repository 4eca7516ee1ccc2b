"""BiasedMHA: dense attention among the nodes of padded graphs, with a bias for every pair."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash.nn.common import computes_as


class BiasedMHA(nn.Module):
    r"""Multi-head attention with a bias, with the interface of ``dgl.nn.BiasedMHA``.

    .. math::
        h'_i = O \Big\Vert_{h} \sum_j \mathrm{softmax}_j \left(
            \frac{\langle Q^h h_i, K^h h_j \rangle}{\sqrt{D}} \circ b^h_{ij} \right) V^h h_j

    among the :math:`N` nodes of each graph of a padded batch, where :math:`\circ` adds or
    multiplies and :math:`D = \mathrm{feat\_size} / H`.

    Parameters
    ----------
    feat_size : int
        Input and output width.
    num_heads : int
        Number of heads, :math:`H`, which has to divide ``feat_size``.
    bias : bool
        Whether the four maps have biases. Default True.
    attn_bias_type : str
        ``"add"``: :math:`b` is added to the scores. Anything else, as ``"mul"``: it multiplies
        them. Default ``"add"``.
    attn_drop : float
        Dropout on the attention weights. Default 0.1.

    Attributes
    ----------
    q_proj, k_proj, v_proj, out_proj : Linear
        :math:`Q, K, V, O`, (feat_size, feat_size) each.
    dropout : Dropout
        Of the weights.

    Raises
    ------
    AssertionError
        If ``num_heads`` does not divide ``feat_size``.

    Notes
    -----
    Source: C. Ying, T. Cai, S. Luo, S. Zheng, G. Ke, D. He, Y. Shen, T.-Y. Liu, "Do Transformers
    Really Perform Bad for Graph Representation?", NeurIPS 2021, https://arxiv.org/abs/2106.05234.

    As in DGL, a node from which everything is masked attends to NaN.

    **Fused path.** Where autograd records nothing, the bias is added (or absent) and no weight is
    dropped, attention is torch's ``scaled_dot_product_attention``, whose kernels hold no tensor of
    scores beside bias and mask. Else scores and weights are tensors of shape (B * H, N, N), as in
    DGL: torch's kernels have no derivatives of derivatives, multiply by no bias, and drop other
    weights from the same seed. All is plain torch; there is no kernel of this package here.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import BiasedMHA
    >>> bias = torch.zeros(2, 5, 5, 4)
    >>> BiasedMHA(16, num_heads=4)(torch.randn(2, 5, 16), bias).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        feat_size: int,
        num_heads: int,
        bias: bool = True,
        attn_bias_type: str = "add",
        attn_drop: float = 0.1,
    ) -> None:
        super().__init__()
        self.feat_size = feat_size
        self.num_heads = num_heads
        self.head_dim = feat_size // num_heads
        if self.head_dim * num_heads != feat_size:
            raise AssertionError("feat_size must be divisible by num_heads")
        self.scaling = self.head_dim**-0.5
        self.attn_bias_type = attn_bias_type
        self.q_proj = nn.Linear(feat_size, feat_size, bias=bias)
        self.k_proj = nn.Linear(feat_size, feat_size, bias=bias)
        self.v_proj = nn.Linear(feat_size, feat_size, bias=bias)
        self.out_proj = nn.Linear(feat_size, feat_size, bias=bias)
        self.dropout = nn.Dropout(p=attn_drop)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the matrices from Glorot's uniform distribution; only the last bias becomes 0."""
        for part in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(part.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.out_proj.weight)
        if self.out_proj.bias is not None:
            nn.init.zeros_(self.out_proj.bias)

    def forward(
        self, ndata: Tensor, attn_bias: Tensor | None = None, attn_mask: Tensor | None = None
    ) -> Tensor:
        r"""Let the nodes of each graph attend to each other.

        Parameters
        ----------
        ndata : Tensor
            (B, N, feat_size)
        attn_bias : Tensor, optional
            :math:`b`, (B, N, N, H) or what broadcasts to it.
        attn_mask : Tensor, optional
            (B, N, N), true where node :math:`i` shall not see node :math:`j`. Leave each row
            something to see, also those of padding.

        Returns
        -------
        Tensor
            (B, N, feat_size)

        Raises
        ------
        TypeError
            If ``ndata`` is no tensor.
        ValueError
            If ``ndata`` has not three dimensions.
        IndexError
            If the mask does not fit.
        RuntimeError
            If the bias does not fit, or features have another dtype or width than the module.
        """
        # (B, H, N, D)
        q, k, v = (
            part(ndata).unflatten(-1, (self.num_heads, self.head_dim)).transpose(-3, -2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        batch_size, num_nodes, _ = ndata.shape
        if num_nodes > 0 and self._can_fuse(q, k, v, attn_bias):
            bias = None
            if attn_bias is not None or attn_mask is not None:
                # Heads before nodes, and dense rows, without which torch takes the slow way.
                nothing = q.new_zeros(()).expand(batch_size, self.num_heads, num_nodes, num_nodes)
                bias = self._modify(nothing, attn_bias, attn_mask).contiguous()
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=self.scaling)
            if bias is not None:
                # What cannot see anything is 0 there, and NaN with any other softmax.
                blind = bias.amax(dim=-1, keepdim=True) == -torch.inf
                out = out.masked_fill(blind, torch.nan)
        else:
            scores = (q * self.scaling) @ k.transpose(-2, -1)
            scores = self._modify(scores, attn_bias, attn_mask)
            # One dimension for graphs and heads: what hooks on the dropout see in DGL.
            weights = self.dropout(scores.flatten(0, 1).softmax(dim=-1))
            out = (weights @ v.flatten(0, 1)).unflatten(0, (batch_size, self.num_heads))
        return self.out_proj(out.transpose(1, 2).flatten(2))

    def _can_fuse(self, q: Tensor, k: Tensor, v: Tensor, attn_bias: Tensor | None) -> bool:
        """Whether torch's fused attention does all that is asked for."""
        if attn_bias is not None and self.attn_bias_type != "add":
            return False
        if torch.is_grad_enabled() and any(
            value is not None and value.requires_grad for value in (q, k, v, attn_bias)
        ):
            return False
        keeps_all = not self.dropout.training or self.dropout.p == 0
        return computes_as(self.dropout, nn.Dropout) and keeps_all

    def _modify(self, scores: Tensor, attn_bias: Tensor | None, attn_mask: Tensor | None) -> Tensor:
        """Bias and mask the scores, (B, H, N, N); of the dtype of the scores."""
        found = scores.permute(0, 2, 3, 1)
        shape = list(found.shape)
        if attn_bias is not None:
            found = found + attn_bias if self.attn_bias_type == "add" else found * attn_bias
            if list(found.shape) != shape:
                raise RuntimeError(
                    f"output with shape {shape} doesn't match the broadcast shape "
                    f"{list(found.shape)}"
                )
        if attn_mask is not None:
            hidden = attn_mask.to(torch.bool)
            _check_mask(list(hidden.shape), shape)
            hidden = hidden.reshape(*hidden.shape, *[1] * (4 - hidden.dim()))
            found = found.masked_fill(hidden, -torch.inf)
        return found.permute(0, 3, 1, 2).to(scores.dtype)


def _check_mask(mask: list[int], shape: list[int]) -> None:
    """Refuse, in torch's words, a mask that could not be an index of the scores."""
    if len(mask) > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    for i, (found, expected) in enumerate(zip(mask, shape, strict=False)):
        if found != expected:
            raise IndexError(
                f"The shape of the mask {mask} at index {i} does not match the shape of the "
                f"indexed tensor {shape} at index {i}"
            )
