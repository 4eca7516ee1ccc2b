"""EdgePredictor, TransE and TransR give DGL's scores, gradients and errors."""

from __future__ import annotations

from functools import partial

import dgl_flash.nn as ours

# isort: split
import dgl.nn as theirs
import pytest
import torch
from torch import nn

from tests.nn.common import draw, raised, randomise, twins
from tests.numerics import assert_accurate, outputs_and_grads

OPS = ["dot", "cos", "ele", "cat"]
every_op = pytest.mark.parametrize("op", OPS)
every_norm = pytest.mark.parametrize("p", [1, 2, 1.5, 3, float("inf")])
SCORERS = {"TransE": (5, 6), "TransR": (5, 4, 6)}  # of 5 relations and entities of width 6
every_scorer = pytest.mark.parametrize("name", SCORERS)


def run(module, given, device, dtype):
    module = module.to(device=device, dtype=dtype)
    module.zero_grad(set_to_none=True)

    def there(value):
        return value.to(device, dtype, copy=True) if value.is_floating_point() else value.to(device)

    found = outputs_and_grads(module, {name: there(value) for name, value in given.items()})
    grads = {f"grad_{key}": p.grad.clone() for key, p in module.named_parameters()}
    return found | grads


def assert_same(pair, given, device):
    mine, other = pair
    randomise(mine)
    other.load_state_dict(mine.state_dict())
    found = run(mine, given, device, torch.float32)
    usual = run(other, given, "cpu", torch.float32)
    exact = run(other, given, "cpu", torch.float64)
    assert found.keys() == exact.keys()
    for key, value in found.items():
        judged = (value.cpu(), usual[key], exact[key])
        assert_accurate(*(tensor.reshape(1, -1) for tensor in judged), what=key, ulps=64)


def ends(count, width=6):
    return {"h_src": draw(count, width), "h_dst": draw(count, width, seed=1)}


def triples(count, num_rels=5, dtype=torch.int64):
    # Cubed, so that relations differ in how many triples they have.
    rels = (torch.rand(count, generator=torch.Generator().manual_seed(5)) ** 3 * num_rels).to(dtype)
    return {"h_head": draw(count, 6), "h_tail": draw(count, 6, seed=1), "rels": rels}


def errors(*calls):
    return [(type(error), str(error)) for error in map(raised, calls)]


@every_op
@pytest.mark.parametrize("widths", [(), (6,), (6, 3), (6, 1)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_pairs(op, widths, bias, count, device):
    assert_same(twins("EdgePredictor", op, *widths, bias=bias), ends(count), device)


@every_op
def test_half_types_of_pairs(op, device):
    for dtype in (torch.float16, torch.bfloat16):
        mine, other = (layer.to(dtype) for layer in twins("EdgePredictor", op, 6, 3))
        given = [value.to(dtype) for value in ends(20).values()]
        found = mine.to(device)(*(value.to(device) for value in given))
        torch.testing.assert_close(found.cpu(), other(*given), rtol=2e-2, atol=2e-2)
        assert found.dtype == dtype


def test_unknown_operation():
    calls = (partial(lib.EdgePredictor, "sum", 6, 3) for lib in (ours, theirs))
    mine, other = errors(*calls)
    assert mine == other


@every_op
@pytest.mark.parametrize(
    "spoil",
    [
        lambda h: h[:-1],
        lambda h: h[:, :-1],
        lambda h: h.double(),
        lambda h: h.tolist(),
        lambda h: h[0],
        lambda h: h.expand(2, -1, -1),
    ],
)
def test_wrong_pairs(op, spoil):
    """Whatever DGL refuses is refused, as an error of the same class."""
    mine, other = twins("EdgePredictor", op)
    h_src, h_dst = ends(20).values()
    for given in ((h_src, spoil(h_dst)), (spoil(h_src), h_dst)):
        try:
            expected = other(*given)
        except Exception as error:
            found = raised(partial(mine, *given))
            unreadable = AttributeError  # DGL's, for what is no tensor
            wanted = (TypeError, ValueError) if type(error) is unreadable else (type(error),)
            # A vector or a stack of matrices is no list of rows: one class for both sides.
            wanted += (ValueError,) if op == "dot" else ()
            assert type(found) in wanted, repr(found)
        else:
            torch.testing.assert_close(mine(*given), expected)


def test_a_transposed_end_is_refused():
    """DGL reads its numbers in the shape of the other end."""
    mine, other = twins("EdgePredictor", "dot")
    h_src, h_dst = draw(3, 4), draw(4, 3)
    assert other(h_src, h_dst).shape == (3, 1)
    assert type(raised(partial(mine, h_src, h_dst))) is RuntimeError


@every_scorer
@every_norm
@pytest.mark.parametrize("count", [1, 4, 5, 6, 60])
def test_triples(name, p, count, device):
    assert_same(twins(name, *SCORERS[name], p=p), triples(count), device)


@every_scorer
def test_no_triples(name, device):
    mine, other = twins(name, *SCORERS[name])
    given = triples(0).values()
    assert mine.to(device)(*(value.to(device) for value in given)).shape == other(*given).shape


@every_scorer
@pytest.mark.parametrize("num_rels", [1, 2, 100])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_relations(name, num_rels, dtype, device):
    sizes = (num_rels, *SCORERS[name][1:])
    assert_same(twins(name, *sizes), triples(60, num_rels, dtype), device)


@every_scorer
@pytest.mark.parametrize("count", [4, 60])
@pytest.mark.parametrize("lone", [("h_head",), ("h_tail",), ("rels",), ("h_head", "h_tail")])
def test_one_for_all_triples(name, count, lone, device):
    """One entity against all others, or one relation for all pairs."""
    given = triples(count)
    given |= {key: given[key][:1] for key in lone}
    assert_same(twins(name, *SCORERS[name], p=2), given, device)


@every_scorer
def test_equal_ends(name, device):
    """The gradient of a norm of 0 is 0, not NaN."""
    given = triples(60)
    given["h_tail"] = given["h_head"]
    layers = twins(name, *SCORERS[name], p=2)
    found = []
    for layer, where in zip(layers, (device, "cpu"), strict=True):
        nn.init.zeros_(layer.rel_emb.weight)
        found.append(run(layer, given, where, torch.float32))
    for key, value in found[0].items():
        torch.testing.assert_close(value.cpu(), found[1][key], rtol=1e-5, atol=1e-5)


def test_a_common_offset_is_not_multiplied(device):
    """Far from 0 the difference of two products is what their rounding leaves."""
    mine, other = twins("TransR", *SCORERS["TransR"])
    given = triples(60)
    given["h_tail"] = given["h_head"] + 2.0**-3 * given["h_tail"].round()
    far = {key: (h * 8).round() / 8 + 4096 if key != "rels" else h for key, h in given.items()}
    exact = other.double()(*(h.double() if h.is_floating_point() else h for h in far.values()))
    found = mine.to(device)(*(h.to(device) for h in far.values())).cpu().double()
    usual = other.float()(*far.values()).double()
    assert (found - exact).abs().max() < (usual - exact).abs().max() / 10


@pytest.mark.parametrize("count", [4, 60])
def test_gradients_reach_the_second_order(count, device):
    for name, sizes in SCORERS.items():
        layer = twins(name, *sizes, p=2)[0].double().to(device)
        head, tail, rels = (value.to(device) for value in triples(count).values())
        head, tail = head.double().requires_grad_(), tail.double().requires_grad_()
        assert torch.autograd.gradgradcheck(
            partial(layer, rels=rels), (head, tail), nondet_tol=1e-10
        )


@every_scorer
@pytest.mark.parametrize("value", [-1, 5])
@pytest.mark.parametrize("count", [4, 60])
def test_relations_out_of_range(name, value, count):
    given = triples(count)
    given["rels"][1] = value
    mine, other = errors(*(partial(layer, **given) for layer in twins(name, *SCORERS[name])))
    assert mine == other
    assert mine[0] is IndexError


@every_scorer
def test_relations_are_integers(name):
    given = triples(60)
    given["rels"] = given["rels"].float()
    mine, other = errors(*(partial(layer, **given) for layer in twins(name, *SCORERS[name])))
    assert mine == other


@every_scorer
@pytest.mark.parametrize("key", ["h_head", "h_tail", "rels"])
@pytest.mark.parametrize("spoil", [lambda h: h[:-1], lambda h: h.tolist(), lambda h: None])
@pytest.mark.parametrize("count", [4, 60])
def test_wrong_triples(name, key, spoil, count):
    given = triples(count)
    given[key] = spoil(given[key])
    mine, other = (raised(partial(layer, **given)) for layer in twins(name, *SCORERS[name]))
    assert isinstance(mine, (TypeError, ValueError, RuntimeError)), repr(mine)
    assert isinstance(other, (TypeError, ValueError, RuntimeError, AttributeError))


def hooked(layer):
    layer.rel_project.register_forward_hook(lambda *given: given[-1] * 1.5)


def renormalised(layer):
    layer.rel_project.max_norm = 1.0


def padded(layer):
    layer.rel_project.padding_idx = 0


def frequent(layer):
    layer.rel_project.scale_grad_by_freq = True


@pytest.mark.parametrize("change", [hooked, renormalised, padded, frequent])
def test_what_an_embedding_does_beside_looking_up(change, device):
    layers = twins("TransR", *SCORERS["TransR"], p=2)
    for layer in layers:
        change(layer)
    found, expected = (
        run(layer, triples(60), where, torch.float32)
        for layer, where in zip(layers, (device, "cpu"), strict=True)
    )
    for key, value in found.items():
        torch.testing.assert_close(value.cpu(), expected[key], rtol=1e-4, atol=1e-5, msg=key)
    for mine, other in zip(*(layer.parameters() for layer in layers), strict=True):
        torch.testing.assert_close(mine.cpu(), other)


def test_no_matrix_for_each_triple():
    """Nothing of the size of (E, nfeats, rfeats) is kept for the backward pass."""
    given, sizes = triples(600), []
    given["h_head"].requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda saved: sizes.append(saved.numel()) or saved, lambda saved: saved
    ):
        twins("TransR", *SCORERS["TransR"])[0](**given)
    assert max(sizes) < 600 * 4 * 6


def test_modules_of_the_classes():
    for name, module in (("EdgePredictor", "edgepred"), ("TransE", "transe"), ("TransR", "transr")):
        assert getattr(ours, name).__module__ == f"dgl_flash.nn.link.{module}"
