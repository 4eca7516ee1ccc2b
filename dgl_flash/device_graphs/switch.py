"""Let graphs of a CPU-only DGL live on CUDA, and take that back."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Any

_VERSIONS = ("2.1", "1.1")
_changed: list[tuple[Any, str, Any]] = []  # owner, name, what was there
_ABSENT = object()
_lock = threading.RLock()

HAS_CUDA = (
    "enable_cuda: DGL {version} has been built with CUDA, nothing is changed; its graphs go to the "
    "GPU by themselves"
)
UNTESTED = (
    "enable_cuda: DGL {version} is not one that this has been tested with "
    '(2.1.0, 1.1.3); if graphs misbehave on CUDA, pip install "dgl_flash[dgl]"'
)


class CudaEnabled:
    """What :func:`enable_cuda` returns: a context manager that ends what it began.

    Attributes
    ----------
    changed : bool
        Whether the call has changed DGL; False if it was enabled already, or has CUDA itself.

    Notes
    -----
    **Fused path.** There is none: nothing is computed.
    """

    def __init__(self, changed: bool) -> None:
        self.changed = changed

    def __enter__(self) -> CudaEnabled:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.changed:
            disable_cuda()

    def __repr__(self) -> str:
        return f"CudaEnabled(changed={self.changed})"


def enable_cuda() -> CudaEnabled:
    """Let ``graph.to("cuda")`` and all that follows work with a DGL that was built without CUDA.

    The structure of such a graph stays in the memory of the host, where DGL answers questions about
    it; ids are copied there and back. Its features live on the GPU, and message passing with
    built-in functions (``update_all``, ``apply_edges``, ``dgl.ops``, ``edge_softmax``, read-out) is
    that of :mod:`dgl_flash.ops`, which keeps a copy of the structure on the GPU.

    Returns
    -------
    CudaEnabled
        Also a context manager: ``with dgl_flash.enable_cuda(): ...`` ends with
        :func:`disable_cuda`, unless it was enabled before.

    Raises
    ------
    ImportError
        There is no DGL.

    Warns
    -----
    UserWarning
        DGL has CUDA itself (then nothing is changed), or is of an untested version.

    Notes
    -----
    What cannot work raises ``dgl.DGLError`` and says what to do instead: UVA graphs
    (``use_uva=True``, ``pin_memory_()``). Neighbours are sampled on the host, by the sampler that
    DGL has for graphs there; not where ids are int32, which that one mistakes for int64 (with
    several threads a plain DGL gives blocks of wrong edges then). It holds for the process; workers
    of a ``DataLoader`` that are forked have it too.

    **Fused path.** Message passing on CUDA runs the kernels of the ops that it is made of; see
    ``dgl_flash.ops.gspmm``, ``gsddmm``, ``edge_softmax`` and ``segment_reduce``. User-defined
    functions are torch on the GPU, one call for each degree, as in DGL. The rest (sampling,
    subgraphs, batching) is DGL's on the host.

    Examples
    --------
    >>> import dgl_flash
    >>> import dgl  # doctest: +SKIP
    >>> dgl_flash.enable_cuda()  # doctest: +SKIP
    CudaEnabled(changed=True)
    >>> graph = dgl.graph(([0, 1], [1, 2])).to("cuda")  # doctest: +SKIP
    """
    import dgl

    with _lock:
        if _changed:
            return CudaEnabled(changed=False)
        if has_cuda():
            warnings.warn(HAS_CUDA.format(version=dgl.__version__), stacklevel=2)
            return CudaEnabled(changed=False)
        if not dgl.__version__.startswith(_VERSIONS):
            warnings.warn(UNTESTED.format(version=dgl.__version__), stacklevel=2)
        for owner, name, value in list(_replacements()):
            _changed.append((owner, name, vars(owner).get(name, _ABSENT)))
            setattr(owner, name, value)
    return CudaEnabled(changed=True)


def disable_cuda() -> None:
    """Undo :func:`enable_cuda`; graphs that are on CUDA then must not be used any more.

    Where nothing was enabled, nothing happens.

    Notes
    -----
    **Fused path.** There is none: nothing is computed.
    """
    with _lock:
        while _changed:
            owner, name, value = _changed.pop()
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def is_enabled() -> bool:
    """Whether :func:`enable_cuda` holds."""
    return bool(_changed)


def has_cuda() -> bool:
    """Whether the installed DGL was built with CUDA."""
    from dgl._ffi.function import list_global_func_names

    return "device_api.cuda" in list_global_func_names()


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    from dgl import backend

    from dgl_flash.device_graphs.arrays import Conversions
    from dgl_flash.device_graphs.filters import filter_methods
    from dgl_flash.device_graphs.functions import homed_functions
    from dgl_flash.device_graphs.index import index_methods
    from dgl_flash.device_graphs.sampling import sampler_methods
    from dgl_flash.device_graphs.sparse import sparse_functions

    conversions = Conversions(backend)
    yield backend, "zerocopy_to_dgl_ndarray", conversions.to_array
    yield backend, "zerocopy_to_dgl_ndarray_for_write", conversions.to_array_for_write
    yield backend, "zerocopy_from_dgl_ndarray", conversions.from_array
    yield backend, "arange", conversions.arange
    yield from homed_functions()
    yield from index_methods()
    yield from filter_methods()
    yield from sampler_methods()
    yield from sparse_functions()
