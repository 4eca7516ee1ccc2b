"""The binding of cuSPARSE without the library: what is called, with what, and what is freed.

Values are tested on a GPU, in ``tests/ops/test_spmm_cusparse.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dgl_flash.kernels import cusparse

STREAM = 77


class Library:
    """Records every call; hands out numbered handles and descriptors."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.scalars: list[Any] = []
        self.made = 100
        self.fail = ""

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name == self.fail:
                return 10
            plain = [getattr(argument, "value", argument) for argument in arguments]
            if name.startswith("cusparseCreate"):
                self.made += 1
                arguments[0]._obj.value = self.made
                plain[0] = self.made
            if name == "cusparseSpMM_bufferSize":
                arguments[-1]._obj.value = 50
            if name == "cusparseSpMM":
                self.scalars += [arguments[3]._obj, arguments[6]._obj]
            self.calls.append((name, *plain))
            return 0

        return call

    def cusparseGetErrorString(self, status: int) -> bytes:
        return b"operation not supported"

    def names(self) -> list[str]:
        return [name.removeprefix("cusparse") for name, *_ in self.calls]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    fake = Library()
    cusparse._handle.cache_clear()
    monkeypatch.setattr(cusparse, "_library", lambda: fake)
    monkeypatch.setattr(cusparse, "current_stream_pointer", lambda index: STREAM)
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    yield fake
    cusparse._handle.cache_clear()


def operands(dtype: torch.dtype = torch.float32, index: torch.dtype = torch.int32) -> Any:
    indptr = torch.tensor([0, 1, 3], dtype=index)
    indices = torch.tensor([2, 0, 4], dtype=index)
    values, feat = torch.ones(3, dtype=dtype), torch.ones(5, 7, dtype=dtype)
    return indptr, indices, values, feat, torch.empty(2, 7, dtype=dtype)


def test_all_calls(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    workspaces = []

    def empty(*arguments: Any) -> torch.Tensor:
        workspaces.append(torch.empty(*arguments[:1], dtype=arguments[1]))
        return workspaces[-1]

    monkeypatch.setattr(cusparse, "empty", empty)
    given = indptr, indices, values, feat, out = operands()
    cusparse.csr_product(*given)
    handle, rows, of_feat, of_out = 101, 102, 103, 104
    pointers = indptr.data_ptr(), indices.data_ptr(), values.data_ptr()
    assert library.calls[:5] == [
        ("cusparseCreate", handle),
        ("cusparseSetStream", handle, STREAM),
        ("cusparseCreateCsr", rows, 2, 5, 3, *pointers, 2, 2, 0, 0),
        ("cusparseCreateDnMat", of_feat, 5, 7, 7, feat.data_ptr(), 0, 2),
        ("cusparseCreateDnMat", of_out, 2, 7, 7, out.data_ptr(), 0, 2),
    ]
    size, product = library.calls[5:7]
    for call, name in ((size, "cusparseSpMM_bufferSize"), (product, "cusparseSpMM")):
        assert call[:4] == (name, handle, 0, 0)
        assert (call[5], call[6], call[8]) == (rows, of_feat, of_out)
        assert call[9:11] == (0, 6)
    (workspace,) = workspaces
    assert product[-1] == workspace.data_ptr()
    assert workspace.numel() * 4 >= 50
    assert library.calls[7:] == [
        ("cusparseDestroyDnMat", of_out),
        ("cusparseDestroyDnMat", of_feat),
        ("cusparseDestroySpMat", rows),
    ]


@pytest.mark.parametrize(
    ("dtype", "kind", "arithmetic"),
    [
        (torch.float64, 1, 1),
        (torch.float32, 0, 0),
        (torch.float16, 2, 0),
        (torch.bfloat16, 14, 0),
    ],
    ids=str,
)
@pytest.mark.parametrize(("index", "index_kind"), [(torch.int32, 2), (torch.int64, 3)], ids=str)
def test_types(
    library: Library,
    dtype: torch.dtype,
    kind: int,
    arithmetic: int,
    index: torch.dtype,
    index_kind: int,
) -> None:
    cusparse.csr_product(*operands(dtype, index))
    calls = {name: arguments for name, *arguments in library.calls}
    assert calls["cusparseCreateCsr"][-4:] == [index_kind, index_kind, 0, kind]
    assert calls["cusparseCreateDnMat"][-2:] == [kind, 2]
    assert calls["cusparseSpMM"][8] == arithmetic
    alpha, beta = library.scalars
    scalar = ctypes.c_double if dtype == torch.float64 else ctypes.c_float
    assert type(alpha) is type(beta) is scalar
    assert (alpha.value, beta.value) == (1.0, 0.0)


def test_one_handle_for_a_device(library: Library) -> None:
    for _ in range(3):
        cusparse.csr_product(*operands())
    assert library.names().count("Create") == 1
    assert library.names().count("SpMM") == 3


@pytest.mark.parametrize(
    ("call", "freed"),
    [
        ("CreateCsr", []),
        ("CreateDnMat", ["DestroySpMat"]),
        ("SpMM_bufferSize", ["DestroyDnMat", "DestroyDnMat", "DestroySpMat"]),
        ("SpMM", ["DestroyDnMat", "DestroyDnMat", "DestroySpMat"]),
    ],
)
def test_an_error_is_told_and_leaves_nothing(library: Library, call: str, freed: list[str]) -> None:
    library.fail = f"cusparse{call}"
    with pytest.raises(RuntimeError, match=rf"{call}: operation not supported \(status 10"):
        cusparse.csr_product(*operands())
    assert [name for name in library.names() if name.startswith("Destroy")] == freed
    assert not cusparse._lock.locked()


def test_a_missing_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cusparse, "LIBRARY", "libno-such-thing.so.12")
    for cached in (cusparse._library, cusparse.why_unavailable):
        cached.cache_clear()
    try:
        reason = cusparse.why_unavailable()
    finally:
        for cached in (cusparse._library, cusparse.why_unavailable):
            cached.cache_clear()
    assert reason is not None and "cuSPARSE cannot be loaded" in reason
