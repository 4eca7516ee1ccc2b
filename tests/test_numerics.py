"""The judge must let good results pass and must not let wrong ones."""

from __future__ import annotations

import pytest
import torch

from tests.numerics import assert_accurate, check_op, judge, outputs_and_grads, pseudo_random

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def sample(dtype: torch.dtype, shape: tuple[int, ...] = (1000, 4, 16)):
    """An oracle, its rounding (a perfect result) and the same with a little noise (torch's)."""
    generator = torch.Generator().manual_seed(0)
    oracle = torch.randn(shape, generator=generator, dtype=torch.float64)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    baseline = (oracle * (1 + 0.25 * torch.finfo(dtype).eps * noise)).to(dtype)
    return oracle.to(dtype).clone(), baseline, oracle


@pytest.mark.parametrize("dtype", DTYPES)
def test_accepts_a_good_result(dtype):
    actual, baseline, oracle = sample(dtype)
    assert_accurate(actual, baseline, oracle)
    assert_accurate(baseline, actual, oracle)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", [0, 17, 999])
def test_rejects_one_wrong_row(dtype, row):
    actual, baseline, oracle = sample(dtype)
    actual[row] = actual[(row + 1) % 1000]
    with pytest.raises(AssertionError, match=f"worst row {row}"):
        assert_accurate(actual, baseline, oracle)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rejects_one_wrong_element(dtype):
    actual, baseline, oracle = sample(dtype, (1000, 512))
    actual[500, 511] += 0.5
    assert not judge(actual, baseline, oracle).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_rejects_a_small_row_beside_a_hub(dtype):
    actual, baseline, oracle = sample(dtype)
    for tensor in (actual, baseline, oracle):
        tensor[0] *= 1000
    actual[1] = 0
    assert not judge(actual, baseline, oracle).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_rejects_a_filled_empty_row(dtype):
    actual, baseline, oracle = sample(dtype)
    for tensor in (actual, baseline, oracle):
        tensor[::2] = 0
    assert judge(actual, baseline, oracle).ok
    actual[4] = 0.1
    assert not judge(actual, baseline, oracle).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_rejects_transposed_heads(dtype):
    actual, baseline, oracle = sample(dtype, (1000, 4, 4))
    assert not judge(actual.transpose(1, 2), baseline, oracle).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_rejects_a_systematic_bias(dtype):
    actual, _, oracle = sample(dtype)
    bias = 1 + 2 * (1000 if dtype == torch.float64 else 4) * torch.finfo(dtype).eps
    verdict = judge((oracle * bias).to(dtype), actual, oracle)
    assert verdict.whole > verdict.whole_limit


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", ["actual", "baseline", "oracle"])
def test_rejects_nan_and_infinity_wherever_they_are(bad, place):
    tensors = dict(zip(("actual", "baseline", "oracle"), sample(torch.float32), strict=True))
    tensors[place][3, 1, 2] = bad
    with pytest.raises(AssertionError, match="NaN or infinity, first in row 3"):
        assert_accurate(**tensors)


def test_nan_everywhere_does_not_pass_either():
    nan = torch.full((3, 2), float("nan"))
    with pytest.raises(AssertionError, match="NaN"):
        assert_accurate(nan, nan, nan.double())


def test_rejects_other_shapes_and_dtypes():
    actual, baseline, oracle = sample(torch.float32)
    with pytest.raises(AssertionError, match="shapes"):
        assert_accurate(actual[:, :1], baseline, oracle)
    with pytest.raises(AssertionError, match="dtype"):
        assert_accurate(actual.half(), baseline, oracle)
    with pytest.raises(TypeError, match="float64"):
        assert_accurate(actual, baseline, oracle.float())


def test_nothing_and_scalars_can_be_judged():
    empty = torch.zeros(0, 4)
    assert judge(empty, empty, empty.double()).ok
    one = torch.tensor(1.5)
    assert judge(one, one, one.double()).ok
    assert not judge(one + 1, one, one.double()).ok


def test_a_zero_oracle_wants_zeros():
    zero = torch.zeros(5, 3)
    assert judge(zero, zero, zero.double()).ok
    assert not judge(zero + 1e-3, zero, zero.double()).ok


def product(x, y, flag=True):
    return x * y if flag else x


def detached_product(x, y, flag=True):
    return x * y.detach()


def test_check_op_judges_every_gradient():
    inputs = {"x": torch.randn(6, 3), "y": torch.randn(6, 3), "flag": True}
    check_op(product, product, inputs)
    with pytest.raises(AssertionError, match="grad_y"):
        check_op(detached_product, product, inputs)


def test_outputs_and_grads_names_several_outputs():
    results = outputs_and_grads(lambda x: (x * 2, x + 1), {"x": torch.ones(2, 2)})
    assert sorted(results) == ["grad_x", "out0", "out1"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_pseudo_random_is_the_same_in_every_dtype(dtype):
    values = pseudo_random(torch.zeros(50, 7, dtype=dtype))
    assert torch.equal(values.double(), pseudo_random(torch.zeros(50, 7, dtype=torch.float64)))
    assert values.abs().max() < 1
