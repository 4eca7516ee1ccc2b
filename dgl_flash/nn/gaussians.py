"""Gaussians of the coordinates of edges, without a tensor of shape (E, K, dim)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash.reference.rows import accumulation_dtype


def _offsets(pseudo: Tensor, mu: Tensor, d: int) -> Tensor:
    """(E, K), how far the edges lie from the means in one coordinate."""
    return pseudo[:, d : d + 1] - mu[:, d]


def _product(first: Tensor, *others: Tensor) -> Tensor:
    """Multiply into ``first``, but not where autograd may need it as it was."""
    multiply = torch.mul if torch.is_grad_enabled() else Tensor.mul_
    for other in others:
        first = multiply(first, other)
    return first


class GaussiansFunction(Function):
    """Takes one coordinate after the other, and lets go of its (E, K) before the next one."""

    @staticmethod
    def forward(ctx: Any, pseudo: Tensor, mu: Tensor, inv_sigma: Tensor) -> Tensor:
        """Compute (E, K), of half types in float32."""
        dtype = torch.promote_types(torch.promote_types(pseudo.dtype, mu.dtype), inv_sigma.dtype)
        wide = accumulation_dtype(dtype)
        means, inverses = mu.to(wide), inv_sigma.to(wide)
        exponent = means.new_zeros(pseudo.shape[0], mu.shape[0])
        for d in range(mu.shape[1]):
            scaled = _product(_offsets(pseudo, means, d), inverses[:, d])
            exponent.addcmul_(scaled, scaled, value=-0.5)
            del scaled
        weight = exponent.exp()  # a new tensor: torch 2.11 compiles others to no gradients at all
        del exponent
        if dtype != wide:
            weight = weight.to(dtype)
        ctx.save_for_backward(pseudo, mu, inv_sigma, weight)
        return weight

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Compute the offsets anew for each kind of gradient, to hold one (E, K) and not two."""
        pseudo, mu, inv_sigma, weight = ctx.saved_tensors
        wide = accumulation_dtype(weight.dtype)
        means, inverses = mu.to(wide), inv_sigma.to(wide)
        to_pseudo, to_mu, to_inv_sigma = ctx.needs_input_grad
        grad_pseudo = torch.empty_like(pseudo) if to_pseudo else None
        grad_mu = torch.empty_like(mu) if to_mu else None
        grad_inv_sigma = torch.empty_like(inv_sigma) if to_inv_sigma else None
        for d in range(mu.shape[1]):
            inverse = inverses[:, d]
            if to_pseudo or to_mu:
                pull = _product(_offsets(pseudo, means, d), inverse, weight, grad_out, inverse)
                if grad_pseudo is not None:
                    grad_pseudo[:, d] = -pull.sum(dim=1)
                if grad_mu is not None:
                    grad_mu[:, d] = pull.sum(dim=0)
                del pull
            if grad_inv_sigma is not None:
                offsets = _offsets(pseudo, means, d)
                stretch = _product(offsets, offsets, weight, grad_out)
                grad_inv_sigma[:, d] = -inverse * stretch.sum(dim=0)
                del offsets, stretch
        return (
            grad_pseudo,  # grad_out w s^2 (mu - p), summed over the Gaussians
            grad_mu,  # grad_out w s^2 (p - mu), summed over the edges
            grad_inv_sigma,  # -grad_out w s (p - mu)^2, summed over the edges
        )


def gaussians(pseudo: Tensor, mu: Tensor, inv_sigma: Tensor) -> Tensor:
    r"""Evaluate Gaussians with diagonal covariances, not normalised, on every edge.

    .. math::
        w_{ek} = \exp \Big( -\tfrac{1}{2} \sum_d \sigma_{kd}^{-2} (p_{ed} - \mu_{kd})^2 \Big)

    Autograd keeps the arguments and the result. Beside them there is one tensor of shape (E, K) at
    a time, forward and backward, and of half types on the CPU a copy that torch makes to convert
    one; derivatives of derivatives keep some for each coordinate. The square is not multiplied out,
    which would lose digits far from 0.

    Parameters
    ----------
    pseudo : Tensor
        :math:`p`, (E, dim), any dtype that promotes to a floating one.
    mu, inv_sigma : Tensor
        :math:`\mu` and :math:`\sigma^{-1}`, (K, dim), any floating dtype.

    Returns
    -------
    Tensor
        (E, K), of the dtype that the three promote to.
    """
    result: Tensor = GaussiansFunction.apply(pseudo, mu, inv_sigma)
    return result
