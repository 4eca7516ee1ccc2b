"""Autograd for grouped reversible residuals: the input is not kept, but rebuilt when needed.

A call keeps its output only, and once another reversible call has taken that as its input, not
even this: the next call can rebuild it. A chain of calls hence keeps one tensor, however long it
is. What else holds a tensor (a variable of the user, another layer) is left alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.func import functional_call

Gradients = list[Tensor | None]


def compose(
    modules: nn.ModuleList,
    graph: Any,
    x: Tensor,
    args: tuple[Any, ...],
    before_each: Callable[[], None] = lambda: None,
) -> Tensor:
    """Compute all groups.

    Parameters
    ----------
    modules : nn.ModuleList
        One for each group.
    graph : Any
        First argument of each module.
    x : Tensor
        (N, D), the features of all groups side by side.
    args : tuple
        Tensors of which each group gets its part; other values go to each group.
    before_each : callable
        Called before each module.

    Returns
    -------
    Tensor
        (N, D)
    """
    if x.shape[-1] % len(modules):
        raise ValueError(_not_shared("x", x, len(modules)))
    xs = x.chunk(len(modules), dim=-1)
    parts = _parts(args, len(modules))
    y = _sum_of_others(xs)
    ys = []
    for module, own, part in zip(modules, xs, parts, strict=True):
        before_each()
        y = own + module(graph, y, *part)
        ys.append(y)
    return torch.cat(ys, dim=-1)


def _split(name: str, value: Tensor, groups: int) -> tuple[Tensor, ...]:
    """Of uneven parts the last one is smaller, as in DGL."""
    chunks = value.chunk(groups, dim=-1)
    if len(chunks) != groups:
        raise ValueError(_not_shared(name, value, groups))
    return chunks


def _not_shared(name: str, value: Tensor, groups: int) -> str:
    return (
        f"GroupRevRes: expected `{name}` with a last dimension for {groups} groups to share, "
        f"got {tuple(value.shape)}; make it a multiple of {groups}"
    )


def _parts(args: tuple[Any, ...], groups: int) -> list[tuple[Any, ...]]:
    """What each group gets of the arguments."""
    shared = [
        _split(f"args[{i}]", value, groups) if isinstance(value, Tensor) else (value,) * groups
        for i, value in enumerate(args)
    ]
    return [tuple(part[group] for part in shared) for group in range(groups)]


def _sum_of_others(xs: Sequence[Tensor]) -> Tensor:
    """What the first module receives: the groups from the second on, as a tensor of its own."""
    return sum(xs[1:], torch.zeros_like(xs[0]))


class Output:
    """The output of a call: kept, or to be rebuilt by the call that took it as its input."""

    def __init__(self, value: Tensor):
        self.value: Tensor | None = value
        self.version = value._version
        self.taken_by: Call | None = None

    def hand_over(self, call: Call) -> None:
        """Forget the value, which ``call`` can rebuild, unless someone has changed it."""
        if self.value is not None and self.value._version == self.version:
            self.value, self.taken_by = None, call

    def put(self, value: Tensor) -> None:
        """Receive the value from a call that has rebuilt it."""
        if self.value is None:
            self.value, self.version = value, value._version

    def get(self) -> Tensor:
        """Find or rebuild the value, (N, D)."""
        calls, output = [], self
        while output.value is None:
            assert output.taken_by is not None
            calls.append(output.taken_by)
            output = output.taken_by.output
        value = output.value
        _require_version(value, output.version)
        for call in reversed(calls):
            value, _ = call.unwind(value)
        return value

    def release(self) -> None:
        """Forget the value again if it can be rebuilt."""
        if self.taken_by is not None:
            self.value = None


class Call:
    """One forward pass, with all that is needed to run it backwards, but not its input.

    Parameters
    ----------
    modules : nn.ModuleList
        One for each group.
    graph : Any
        Their first argument.
    x : Tensor
        (N, D)
    args : tuple
        Their other arguments.
    """

    output: Output

    def __init__(
        self, modules: nn.ModuleList, graph: Any, x: Tensor, args: tuple[Any, ...]
    ) -> None:
        self.modules, self.graph = modules, graph
        trained = [
            {name: p for name, p in module.named_parameters() if p.requires_grad}
            for module in modules
        ]
        # What needs a gradient besides x: tensors among the arguments, then parameters by group.
        self.inputs = [value for value in args if isinstance(value, Tensor)]
        self.inputs += [p for named in trained for p in named.values()]
        self.versions = [value._version for value in self.inputs]
        # Leaves: a history could lead back to this call, and both would live for ever.
        self.args = tuple(_leaf(v, v.requires_grad) if isinstance(v, Tensor) else v for v in args)
        self.parameters = [{name: _leaf(p) for name, p in named.items()} for named in trained]
        self.x_dtype, self.x_needs_grad, self.device = x.dtype, x.requires_grad, x.device
        kind = x.device.type
        self.autocast = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        self.random_states: list[tuple[Tensor, Tensor | None]] = []
        self.source: weakref.ref[Output] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Compute the output as one node of the autograd graph."""
        inputs, self.inputs = self.inputs, []
        out: Tensor = Reversible.apply(self, x, *inputs)
        before = getattr(x.grad_fn, "call", None)
        if isinstance(before, Call):
            before.output.hand_over(self)
            # Weak, because the output refers to this call.
            self.source = weakref.ref(before.output)
        return out

    def forward(self, x: Tensor) -> Tensor:
        """Compute without history, and note the states of the random generators."""

        def note() -> None:
            cuda = self.device.type == "cuda"
            state = torch.cuda.get_rng_state(self.device) if cuda else None
            self.random_states.append((torch.get_rng_state(), state))

        out = compose(self.modules, self.graph, x, self.args, note)
        self.output = Output(out.detach())
        return out

    def backward(self, grad_out: Tensor) -> Gradients:
        """Pull the gradient back to the input and what else there is."""
        x, grads = self.unwind(self.output.get(), grad_out)
        self.output.release()
        source = None if self.source is None else self.source()
        if source is not None and source.taken_by is self:
            source.put(x)
        return grads

    def unwind(self, y: Tensor, grad_out: Tensor | None = None) -> tuple[Tensor, Gradients]:
        """Rebuild the input from the output, and pull the gradient back on the way.

        Parameters
        ----------
        y : Tensor
            (N, D), the output.
        grad_out : Tensor, optional
            (N, D), its gradient.

        Returns
        -------
        (Tensor, list)
            The input (N, D); the gradients of input, arguments and parameters, if one was given.
        """
        tensors = [value for value in self.args if isinstance(value, Tensor)]
        parameters = [p for named in self.parameters for p in named.values()]
        for value, version in zip([*tensors, *parameters], self.versions, strict=True):
            _require_version(value, version)
        groups = len(self.modules)
        parts = _parts(self.args, groups)
        ys = y.chunk(groups, dim=-1)
        xs = list(ys)
        grads_x: Gradients = [None] * groups
        if grad_out is not None:
            grads_x = list(grad_out.chunk(groups, dim=-1))
        pulled: list[Gradients] = [[]] * groups
        with self._conditions_of_forward():
            for i in reversed(range(groups)):
                y_in = ys[i - 1] if i > 0 else _sum_of_others(xs)
                out, grad_in, pulled[i] = self._run_group(i, y_in, parts[i], grads_x[i])
                xs[i] = (ys[i] - out).to(self.x_dtype)
                # The first module reads all groups of the input but its own.
                for reader in range(1, groups) if i == 0 else [i - 1]:
                    grads_x[reader] = _add(grads_x[reader], grad_in)
        grads: Gradients = []
        if grad_out is not None:
            grads = [_join(grads_x, y) if self.x_needs_grad else None]
            for i, whole in enumerate(tensors):
                grads.append(_join([own[i] for own in pulled], whole))
            grads += [grad for own in pulled for grad in own[len(tensors) :]]
        return torch.cat(xs, dim=-1), grads

    def _run_group(
        self, i: int, y_in: Tensor, part: tuple[Any, ...], grad: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Gradients]:
        """Run a module again, and pull a gradient back to its input and to all else, if given."""
        y_in = _leaf(y_in, i > 0 or self.x_needs_grad)
        part = tuple(
            _leaf(value, whole.requires_grad) if isinstance(value, Tensor) else value
            for value, whole in zip(part, self.args, strict=True)
        )
        parameters = {name: _leaf(p) for name, p in self.parameters[i].items()}
        state, cuda_state = self.random_states[i]
        torch.set_rng_state(state)
        if cuda_state is not None:
            torch.cuda.set_rng_state(cuda_state, self.device)
        # On copies of the buffers: batch normalisation shall count a batch once.
        buffers = {name: b.clone() for name, b in self.modules[i].named_buffers()}
        with torch.set_grad_enabled(grad is not None):
            out = functional_call(
                self.modules[i], {**parameters, **buffers}, (self.graph, y_in, *part)
            )
        leaves = [y_in, *(v for v in part if isinstance(v, Tensor)), *parameters.values()]
        grads: Gradients = [None] * len(leaves)
        if grad is not None and out.requires_grad:
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            grad = grad.sum_to_size(out.shape).to(out.dtype)
            found = iter(torch.autograd.grad(out, wanted, grad, allow_unused=True))
            grads = [next(found) if leaf.requires_grad else None for leaf in leaves]
        return out.detach(), grads[0], grads[1:]

    @contextmanager
    def _conditions_of_forward(self) -> Iterator[None]:
        """Autocast as it was; the generators, which running again changes, are put back."""
        enabled, dtype = self.autocast
        devices = [self.device] if self.device.type == "cuda" else []
        with (
            torch.random.fork_rng(devices),
            torch.autocast(self.device.type, dtype=dtype, enabled=enabled, cache_enabled=False),
        ):
            yield


class Reversible(Function):
    """A call as a node of the autograd graph; differentiable once."""

    @staticmethod
    def forward(ctx: Any, call: Call, x: Tensor, *inputs: Tensor) -> Tensor:
        """Compute (N, D) from (N, D)."""
        ctx.call = call
        ctx.save_for_backward(*inputs)
        return call.forward(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Rebuild the input and pull the gradient back."""
        _ = ctx.saved_tensors  # an error if the graph has been freed or an input changed
        return (
            None,  # call
            *ctx.call.backward(grad_out),  # x, inputs
        )


def _leaf(value: Tensor, requires_grad: bool = True) -> Tensor:
    return value.detach().requires_grad_(requires_grad)


def _add(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return one if other is None else other if one is None else one + other


def _join(grads: Gradients, whole: Tensor) -> Tensor | None:
    """Put together the gradients of the parts of an argument."""
    if all(grad is None for grad in grads):
        return None
    parts = whole.chunk(len(grads), dim=-1)
    filled = [
        torch.zeros_like(part) if grad is None else grad
        for part, grad in zip(parts, grads, strict=True)
    ]
    return torch.cat(filled, dim=-1)


def _require_version(value: Tensor, version: int) -> None:
    if value._version != version:
        raise RuntimeError(
            "GroupRevRes: the output, a parameter or another argument of a forward pass was "
            "modified by an inplace operation before its backward pass, which needs it as it was; "
            "work on a copy, or do it afterwards"
        )
