"""Sub-modules are called where a call does more than their class: hooks, pruning, replacements."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from dgl_flash.nn.common import computes_as
from tests.graphs import regular
from tests.nn.common import draw, may_fall_back, ours, theirs

# Of torch, about the older of its two weight normalisations.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
TYPES = torch.arange(30) % 3
MAKERS = {
    "GatedGraphConv": lambda library: library.GatedGraphConv(6, 8, n_steps=2, n_etypes=3),
    "RelGraphConv": lambda library: library.RelGraphConv(6, 8, 3),
    "RelGraphConv basis": lambda library: library.RelGraphConv(6, 8, 3, "basis", 2),
    "RelGraphConv bdd": lambda library: library.RelGraphConv(6, 8, 3, "bdd", 2),
    "GATv2Conv": lambda library: library.GATv2Conv(6, 4, 2),
}


def call(name, module, feat, norm=None):
    types = {} if name == "GATv2Conv" else {"etypes": TYPES.to(feat.device)}
    if norm is not None and name.startswith("Rel"):
        types["norm"] = norm
    return module(regular(), feat, **types)


def matrices(module):
    """Sub-modules and the names of their matrices."""
    for part in list(module.modules()):
        for name, parameter in list(part.named_parameters(recurse=False)):
            if parameter.dim() == 2:
                yield part, name


def pruned(module):
    for part, name in matrices(module):
        prune.l1_unstructured(part, name, 0.3)


def normalised(module):
    for part, name in matrices(module):
        nn.utils.weight_norm(part, name)


def parametrised(module):
    for part, name in matrices(module):
        parametrizations.weight_norm(part, name)


def hooked(module):
    for part in module.children():
        # DGL calls the slope too, which here belongs to the op.
        for leaf in [p for p in part.modules() if not isinstance(p, (nn.ModuleList, nn.LeakyReLU))]:
            leaf.register_forward_hook(lambda *given: given[-1] * 1.5)


class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, *args):
        return torch.tanh(self.base(*args))


def adapted(module):
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, nn.Linear) or name in ("linear_r", "attn_drop"):
                setattr(part, name, Adapter(child))


def losses(name, library, change, device, with_norm):
    torch.manual_seed(0)
    module = MAKERS[name](library).to(device)
    change(module)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    feat = draw(10, 6).to(device)
    norm = torch.linspace(0.5, 1.5, 30, device=device).unsqueeze(1) if with_norm else None
    found = []
    for _ in range(3):
        loss = call(name, module, feat, norm).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(loss.item())
    return found


@may_fall_back  # a hook on the dropout of GATv2's attention has to see that attention
@pytest.mark.parametrize("with_norm", [False, True])
@pytest.mark.parametrize("change", [pruned, normalised, parametrised, hooked, adapted])
@pytest.mark.parametrize("name", MAKERS)
def test_trains_as_dgls(name, change, with_norm, device):
    found = losses(name, ours, change, device, with_norm)
    assert found == pytest.approx(losses(name, theirs, change, "cpu", with_norm), rel=1e-4)
    assert found != pytest.approx(losses(name, ours, lambda _: None, device, with_norm), rel=1e-6)


def test_a_hook_sees_the_attention_of_gatv2(device):
    seen, results = [], []
    feat = draw(10, 6).to(device)
    torch.manual_seed(0)
    module = ours.GATv2Conv(6, 4, 2, attn_drop=0.5).to(device).eval()
    expected, attention = module(regular(), feat, get_attention=True)
    module.attn_drop.register_forward_hook(lambda *given: seen.append(given[-1]))
    results.append(module(regular(), feat))
    results.append(module(regular(), feat, get_attention=True)[0])
    for out in results:
        torch.testing.assert_close(out, expected)
    assert len(seen) == 2
    for values in seen:
        torch.testing.assert_close(values, attention)


def test_types_out_of_range_are_refused_with_hooks():
    module = MAKERS["GatedGraphConv"](ours)
    hooked(module)
    with pytest.raises(AssertionError, match=r"out of range \[0, 3\)"):
        module(regular(), draw(10, 6), TYPES + 1)


def test_what_counts_as_the_usual():
    linear = nn.Linear(2, 2)
    assert computes_as(linear, nn.Linear)
    assert computes_as(parametrizations.weight_norm(linear), nn.Linear)
    assert not computes_as(Adapter(linear), nn.Linear)
    for register in ("forward", "forward_pre", "full_backward", "full_backward_pre"):
        other = nn.Linear(2, 2)
        handle = getattr(other, f"register_{register}_hook")(lambda *_: None)
        assert not computes_as(other, nn.Linear)
        handle.remove()
        assert computes_as(other, nn.Linear)
