"""The optimisation of GNNExplainer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from math import sqrt
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dgl_flash.nn.explain.common import progress

# Keeps the logarithm of a saturated mask finite.
_TINY = 1e-15
_Key = TypeVar("_Key", bound=Hashable)


class MaskLearner(nn.Module):
    """Hyperparameters and the optimisation, for one type of nodes or many."""

    def __init__(
        self,
        model: nn.Module,
        num_hops: int,
        lr: float = 0.01,
        num_epochs: int = 100,
        *,
        alpha1: float = 0.005,
        alpha2: float = 1.0,
        beta1: float = 1.0,
        beta2: float = 0.1,
        log: bool = True,
    ) -> None:
        super().__init__()
        self.model = model
        self.num_hops = num_hops
        self.lr = lr
        self.num_epochs = num_epochs
        self.alpha1 = alpha1
        self.alpha2 = alpha2
        self.beta1 = beta1
        self.beta2 = beta2
        self.log = log

    def learn(
        self,
        predict: Callable[[Mapping[Any, Tensor], Mapping[Any, Tensor] | None], Tensor],
        feat: Mapping[Any, Tensor],
        edges: Mapping[Any, tuple[int, int]],
        row: int | Tensor,
        title: str,
    ) -> tuple[dict[Any, Tensor], dict[Any, Tensor]]:
        """Learn a mask for each tensor of features and each set of edges.

        Parameters
        ----------
        predict : callable
            From features and edge weights, or None without weights, to logits (B, L).
        feat : dict
            Features by type of node.
        edges : dict
            By type of edge, in the order in which masks are drawn: how many, and the number of
            nodes at their two ends together.
        row : int or Tensor
            Which row of the logits is explained.
        title : str
            Title of the progress bar.

        Returns
        -------
        tuple of dict
            Masks of features and of edges, in (0, 1).
        """
        for key, value in feat.items():
            if value.dim() != 2:
                of_type = "" if key is None else f" of type {key!r}"
                raise ValueError(
                    f"{type(self).__name__}: expected `feat`{of_type} of shape (N, D), "
                    f"got {tuple(value.shape)}; flatten the features of a node"
                )
        feat = {key: value.detach() for key, value in feat.items()}
        with torch.no_grad():
            label = predict(dict(feat), None).argmax(dim=-1)[row]
        device = next(iter(feat.values())).device
        feat_mask, edge_mask = {}, {}
        for key, value in feat.items():
            feat_mask[key] = 0.1 * torch.randn(1, value.shape[1], device=device)
        for key, (count, num_ends) in edges.items():
            std = nn.init.calculate_gain("relu") * sqrt(2.0 / max(num_ends, 1))
            edge_mask[key] = std * torch.randn(count, device=device)
        learned = [mask.requires_grad_() for mask in (*feat_mask.values(), *edge_mask.values())]
        optimizer = torch.optim.Adam(learned, lr=self.lr)
        with torch.enable_grad(), progress(self.num_epochs, title, self.log) as step_done:
            for _ in range(self.num_epochs):
                feat_gate, edge_gate = _gates(feat_mask), _gates(edge_mask)
                masked = {
                    key: value * as_feat(feat_gate[key], value) for key, value in feat.items()
                }
                log_probs = predict(masked, edge_gate).log_softmax(dim=-1)
                loss = -log_probs[row, label] + self._size_and_entropy(feat_gate, edge_gate)
                # For the masks alone: the gradients of the model belong to its owner.
                gradients = torch.autograd.grad(loss, learned, allow_unused=True)
                for mask, gradient in zip(learned, gradients, strict=True):
                    mask.grad = gradient
                optimizer.step()
                step_done()
        feat_mask = {key: mask.squeeze() for key, mask in _gates(feat_mask, detach=True).items()}
        return feat_mask, _gates(edge_mask, detach=True)

    def _size_and_entropy(
        self, feat_gate: Mapping[Any, Tensor], edge_gate: Mapping[Any, Tensor]
    ) -> Tensor | float:
        parts = [self.alpha1 * gate.sum() for gate in edge_gate.values()]
        parts += [self.alpha2 * _entropy(gate) for gate in edge_gate.values()]
        parts += [self.beta1 * gate.mean() for gate in feat_gate.values()]
        parts += [self.beta2 * _entropy(gate) for gate in feat_gate.values()]
        return sum(parts)


def _gates(masks: Mapping[_Key, Tensor], detach: bool = False) -> dict[_Key, Tensor]:
    return {key: (m.detach() if detach else m).sigmoid() for key, m in masks.items()}


def as_feat(gate: Tensor, feat: Tensor) -> Tensor:
    """Give what is learned in float32 the type of the features."""
    return gate.to(feat.dtype) if feat.is_floating_point() else gate


def _entropy(gate: Tensor) -> Tensor:
    """Mean entropy of independent coins."""
    closed = 1 - gate
    return -(gate * (gate + _TINY).log() + closed * (closed + _TINY).log()).mean()
