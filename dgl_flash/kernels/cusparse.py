"""The product of a sparse and a dense matrix by cuSPARSE.

The algorithm is CSR_ALG2, the one that torch and DGL take for row-major operands. On an H200 it was
the fastest: CSR_ALG3 took up to twice as long in float32, and 10 to 20 times as long in 16 bits on
skewed graphs; CSR_ALG1 took 5 to 10 times as long; preparing the matrix gained nothing. On skewed
graphs two runs differ in the last bits. So they did with CSR_ALG3 in float32, which is documented
to repeat them: who needs the same bits in each run needs our own kernels.

The library is the one that torch has loaded, bound with ctypes: CuPy's binding runs on CuPy's
current stream whatever stream the handle was given, and refuses to be captured into a CUDA graph.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from contextlib import ExitStack
from ctypes import POINTER, byref, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import torch
from torch import Tensor

from dgl_flash.kernels.jit import accumulator
from dgl_flash.kernels.memory import empty
from dgl_flash.streams import current_stream_pointer

LIBRARY = "libcusparse.so.12"  # of CUDA 12 and of CUDA 13

# Values of enumerations in cusparse.h and library_types.h.
_ALG2 = 6  # CUSPARSE_SPMM_CSR_ALG2
_AS_IT_IS = 0  # CUSPARSE_OPERATION_NON_TRANSPOSE
_ROW_MAJOR = 2  # CUSPARSE_ORDER_ROW
_FROM_ZERO = 0  # CUSPARSE_INDEX_BASE_ZERO
_INDEX = {torch.int32: 2, torch.int64: 3}
_VALUE = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 14}

_PRODUCT = [
    c_void_p,  # handle
    c_int,  # operation on A
    c_int,  # operation on B
    c_void_p,  # alpha
    c_void_p,  # A
    c_void_p,  # B
    c_void_p,  # beta
    c_void_p,  # C
    c_int,  # type of the arithmetic
    c_int,  # algorithm
]
_SIGNATURES: dict[str, list[Any]] = {
    "cusparseCreate": [POINTER(c_void_p)],
    "cusparseSetStream": [c_void_p, c_void_p],
    "cusparseCreateCsr": [POINTER(c_void_p), *[c_int64] * 3, *[c_void_p] * 3, *[c_int] * 4],
    "cusparseDestroySpMat": [c_void_p],
    "cusparseCreateDnMat": [POINTER(c_void_p), *[c_int64] * 3, c_void_p, c_int, c_int],
    "cusparseDestroyDnMat": [c_void_p],
    "cusparseSpMM_bufferSize": [*_PRODUCT, POINTER(c_size_t)],
    "cusparseSpMM": [*_PRODUCT, c_void_p],
}

# A handle has one stream at a time, hence one thread.
_lock = threading.Lock()


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(LIBRARY)
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int
    library.cusparseGetErrorString.argtypes = [c_int]
    library.cusparseGetErrorString.restype = ctypes.c_char_p
    return library


@functools.cache
def why_unavailable() -> str | None:
    """Tell what keeps cuSPARSE from being used, None when nothing does."""
    try:
        _library()
    except (OSError, AttributeError) as error:  # no such library, or one without a function
        return f"cuSPARSE cannot be loaded ({error})"
    return None


def _run(name: str, *arguments: Any) -> None:
    library = _library()
    status = getattr(library, name)(*arguments)
    if status != 0:
        text = library.cusparseGetErrorString(status).decode()
        raise RuntimeError(f"{name}: {text} (status {status})")


@functools.cache
def _handle(device_index: int) -> c_void_p:
    handle = c_void_p()
    _run("cusparseCreate", byref(handle))  # for the current device
    return handle


def _sparse(
    made: ExitStack, indptr: Tensor, indices: Tensor, values: Tensor, num_cols: int
) -> c_void_p:
    found = c_void_p()
    _run(
        "cusparseCreateCsr",
        byref(found),
        indptr.numel() - 1,
        num_cols,
        indices.numel(),
        indptr.data_ptr(),
        indices.data_ptr(),
        values.data_ptr(),
        _INDEX[indptr.dtype],
        _INDEX[indices.dtype],
        _FROM_ZERO,
        _VALUE[values.dtype],
    )
    made.callback(_run, "cusparseDestroySpMat", found)
    return found


def _dense(made: ExitStack, operand: Tensor) -> c_void_p:
    rows, width = operand.shape
    found = c_void_p()
    pointer, kind = operand.data_ptr(), _VALUE[operand.dtype]
    _run("cusparseCreateDnMat", byref(found), rows, width, width, pointer, kind, _ROW_MAJOR)
    made.callback(_run, "cusparseDestroyDnMat", found)
    return found


def csr_product(indptr: Tensor, indices: Tensor, values: Tensor, feat: Tensor, out: Tensor) -> None:
    """Enqueue ``out = A @ feat`` on torch's current stream; nothing is kept nor synchronised.

    Parameters
    ----------
    indptr, indices : Tensor
        Rows of A: shapes (N_rows + 1,) and (E,), int32 or int64, on a CUDA device. The library
        takes no more edges than A has entries, 0 < E <= N_rows N_cols.
    values : Tensor
        (E,), in the order of ``indices``, dtype of ``feat``.
    feat : Tensor
        (N_cols, W), contiguous; float64, float32, float16 or bfloat16.
    out : Tensor
        (N_rows, W), contiguous, dtype of ``feat``; filled.
    """
    device_index = feat.device.index
    scalar = c_double if feat.dtype == torch.float64 else c_float
    one, zero = scalar(1.0), scalar(0.0)
    with _lock, torch.cuda.device(device_index), ExitStack() as made:
        handle = _handle(device_index)
        _run("cusparseSetStream", handle, current_stream_pointer(device_index))
        product = (
            handle,
            _AS_IT_IS,
            _AS_IT_IS,
            byref(one),
            _sparse(made, indptr, indices, values, feat.shape[0]),
            _dense(made, feat),
            byref(zero),
            _dense(made, out),
            _VALUE[accumulator(feat.dtype)],
            _ALG2,
        )
        size = c_size_t()
        _run("cusparseSpMM_bufferSize", *product, byref(size))
        workspace = empty((-(-size.value // 4),), torch.float32, feat.device)
        _run("cusparseSpMM", *product, workspace.data_ptr())
