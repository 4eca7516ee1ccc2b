"""What reversible layers keep, what they never touch, and that they notice what others change."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tests.graphs import regular
from tests.nn.common import draw, ours
from tests.nn.test_grouprevres import Plain, Weighted, gcn


def chain(depth, device="cpu"):
    torch.manual_seed(0)
    return [ours.GroupRevRes(gcn(ours), 2).to(device) for _ in range(depth)]


def test_a_chain_keeps_its_last_output_only(device):
    layers, graph = chain(6, device), regular()
    hidden = draw(10, 8).to(device).requires_grad_() * 1
    stored = []
    for layer in layers:
        stored.append(StorageWeakRef(hidden.untyped_storage()))
        hidden = layer(graph, hidden)
    assert all(storage.expired() for storage in stored)
    hidden.sum().backward()


def test_a_backward_pass_runs_each_module_once_and_drops_what_it_rebuilt(device):
    layers, graph = chain(4, device), regular()
    runs = []
    for layer in layers:
        for module in layer.gnn_modules:
            module.register_forward_hook(lambda *_: runs.append(None))
    out, calls = draw(10, 8).to(device).requires_grad_(), []
    for layer in layers:
        out = layer(graph, out)
        calls.append(out.grad_fn.call)
    assert len(runs) == 8
    out.sum().backward(retain_graph=True)
    assert len(runs) == 16
    assert [call.output.value is None for call in calls] == [True, True, True, False]


def test_nothing_outlives_the_graph(device):
    layers, graph = chain(3, device), regular()
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            out = draw(10, 8).to(device).requires_grad_()
            for layer in layers:
                out = layer(graph, out)
            call = weakref.ref(out.grad_fn.call)
            stored = StorageWeakRef(out.untyped_storage())
            if _:
                out.sum().backward()
            del out
            assert call() is None
            assert stored.expired()
    finally:
        gc.enable()


def test_the_features_keep_their_values(device):
    """DGL frees them, and brings them back, rounded, if there is a backward pass."""
    layers, graph, x = chain(2, device), regular(), draw(10, 8).to(device)
    before = x.clone()
    for leaf in (x, x.clone().requires_grad_()):
        layers[1](graph, layers[0](graph, leaf)).sum().backward()
        assert torch.equal(leaf, before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_evaluation_twice(mode, device):
    layers, graph, x = chain(2, device), regular(), draw(10, 8).to(device)
    with mode():
        outputs = [layers[1](graph, layers[0](graph, x)) for _ in range(2)]
    assert torch.equal(*outputs)


def test_results_that_are_used_elsewhere(device):
    """Skips over a layer, two layers on one result, a layer twice, a result before the last."""
    layers, graph = chain(3, device), regular()

    def model(first, second, third, x):
        a = first(graph, x)
        b = second(graph, a)
        c = third(graph, a) + b * x
        return first(graph, c) + a.exp() + b

    found, expected = [], []
    for kind, values in ((layers, found), ([Plain(m) for m in layers], expected)):
        x = draw(10, 8).to(device).requires_grad_()
        model(*kind, x).square().sum().backward()
        values += [x.grad, *(p.grad for m in kind for p in m.parameters())]
    for value, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kept", [True, False])
def test_a_loss_in_the_middle(kept, device):
    """The later layers took its result; without a backward pass of their own, they rebuild."""
    layers, graph = chain(4, device), regular()
    grads = []
    for kind in (layers, [Plain(m) for m in layers]):
        x = draw(10, 8).to(device).requires_grad_()
        middle = kind[0](graph, x)
        loss = middle.square().sum()
        out = middle
        for layer in kind[1:]:
            out = layer(graph, out)
        if not kept:
            del out, middle
        loss.backward()
        grads.append([x.grad, *(p.grad for p in kind[0].parameters())])
    for value, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-4)


def test_far_away_results_are_rebuilt_without_recursion():
    layers, graph = chain(1), regular()
    with torch.no_grad():
        for parameter in layers[0].parameters():
            parameter.mul_(0.01)
    x = draw(10, 8).requires_grad_()
    middle = layers[0](graph, x)
    out = middle
    for _ in range(400):  # of three frames each, they would be too many
        out = layers[0](graph, out)
    middle.sum().backward()
    assert x.grad.isfinite().all()


def test_a_second_backward_needs_a_retained_graph():
    layers, graph = chain(3), regular()
    x = draw(10, 8).requires_grad_()
    out = x
    for layer in layers:
        out = layer(graph, out)
    first = torch.autograd.grad(out.sum(), x, retain_graph=True)[0]
    second = torch.autograd.grad(out.sum(), x, retain_graph=True)[0]
    torch.testing.assert_close(first, second)
    out.sum().backward()
    torch.testing.assert_close(x.grad, first)
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


@pytest.mark.parametrize("what", ["output", "parameter", "later parameter", "argument"])
def test_changes_before_the_backward_pass_are_errors(what):
    layers = [ours.GroupRevRes(Weighted(ours), 2) for _ in range(2)]
    x, weight = draw(10, 8).requires_grad_(), draw(30, 8)
    middle = layers[0](regular(), x, weight)
    loss = middle.sum()
    if what == "later parameter":
        layers[1](regular(), middle, weight)
    changed = {
        "output": middle,
        "parameter": next(layers[0].parameters()),
        "later parameter": next(layers[1].parameters()),
        "argument": weight,
    }[what]
    with torch.no_grad():
        changed.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_changed_result_is_not_rebuilt_from_the_next_layer():
    layer = ours.GroupRevRes(gcn(ours), 2)
    hidden = layer(regular(), draw(10, 8).requires_grad_())
    with torch.no_grad():
        hidden.mul_(2)
    out = layer(regular(), hidden)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_changed_result_is_not_taken_for_the_old_one():
    """The next layer has to forget neither."""
    layer = ours.GroupRevRes(gcn(ours), 2)
    x = draw(10, 8).requires_grad_()
    grads = []
    for module in (layer, Plain(layer)):
        x = draw(10, 8).requires_grad_()
        hidden = module(regular(), x)
        hidden = torch.relu_(hidden * 1)
        module(regular(), hidden).sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)
