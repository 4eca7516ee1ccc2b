"""The rule: what counts as the same."""

from __future__ import annotations

import torch

from dgl_flash.checking.compare import ULPS, ULPS_DIRECT, Difference, compare, first_difference
from dgl_flash.checking.record import ModuleCall

EPS = torch.finfo(torch.float32).eps


def verdict(theirs: float, ours: float, exact: float | None = 1.0) -> Difference:
    oracle = None if exact is None else torch.tensor([exact], dtype=torch.float64)
    return compare("output", "", torch.tensor([theirs]), torch.tensor([ours]), oracle)


def test_twice_the_error_of_dgl_and_some_ulp() -> None:
    assert verdict(1.0, 1 + (ULPS - 1) * EPS).ok
    assert not verdict(1.0, 1 + (ULPS + 2) * EPS).ok
    assert verdict(1.001, 0.9981).ok
    assert not verdict(1.001, 0.9979).ok


def test_without_an_oracle() -> None:
    assert verdict(1.0, 1 + (ULPS_DIRECT - 1) * EPS, exact=None).ok
    assert not verdict(1.0, 1 + (ULPS_DIRECT + 2) * EPS, exact=None).ok


def test_half_types_get_less() -> None:
    one = torch.ones(1, dtype=torch.bfloat16)
    for oracle, allowed in ((one.double(), 2), (None, 8)):
        found = compare("output", "", one, one + allowed * 2**-7, oracle)
        assert found.ok and found.allowed == allowed * 2**-7
        assert not compare("output", "", one, one + (allowed + 1) * 2**-7, oracle).ok


def test_infinities_must_be_in_the_same_places() -> None:
    infinite = float("inf")
    assert verdict(infinite, infinite, infinite).ok
    assert not verdict(1.0, infinite).ok
    assert not verdict(1.0, float("nan")).ok
    assert verdict(float("nan"), 1.0).problem == "NaN or infinity in other places than DGL's"


def test_whole_numbers_must_be_equal() -> None:
    theirs = torch.tensor([1, 2])
    assert compare("output", "", theirs, torch.tensor([1, 2])).ok
    assert not compare("output", "", theirs, torch.tensor([1, 3])).ok


def test_dtypes_and_shapes_must_be_equal() -> None:
    found = compare("output", "0", torch.ones(2), torch.ones(2, dtype=torch.float64))
    assert found.problem == "(2,) torch.float64 instead of (2,) torch.float32"
    assert str(found) == "output 0: (2,) torch.float64 instead of (2,) torch.float32"


def test_nothing_equals_nothing() -> None:
    assert compare("output", "", torch.empty(0, 3), torch.empty(0, 3)).ok


def test_the_first_of_the_backward_is_that_of_the_module_called_last() -> None:
    called = [ModuleCall(name, "X", 0, {}) for name in ("b", "a", "")]
    wrong = [
        Difference("gradient", name, error=1.0) for name in ("input.1", "a.weight", "b.weight")
    ]
    assert first_difference(wrong, called) is wrong[1]
    module = Difference("module", "b (X)", error=1.0)
    assert first_difference([*wrong, module], called) is module
    assert first_difference([], called) is None
