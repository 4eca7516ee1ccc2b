"""What the index object of a graph answers when it has a home, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dgl_flash.device_graphs.sparse import graph_of
from dgl_flash.errors import dgl_error
from dgl_flash.structure.dgl_reader import dgl_structure
from dgl_flash.structure.homes import home_of, set_home

_RELATION = "dgl_flash relation"

PINNING = (
    "pin_memory_: this DGL was built without CUDA, so that no graph can be read from the GPU where "
    "it lies (UVA); leave out `use_uva=True` and `pin_memory_()`: the DataLoader samples on the "
    "host and copies blocks and features to `device` while the model computes"
)
CACHING = (
    "GPUCache: this DGL was built without CUDA and has no cache of features on the GPU; leave out "
    "`gpu_cache`: the DataLoader fetches features in pinned memory while the model computes, or "
    "keep all of them on the GPU and take the rows of `input_nodes` there"
)


def index_methods() -> Iterator[tuple[Any, str, Any]]:
    """Class, name and replacement of the methods of graphs and arrays that know of homes."""
    from dgl import DGLGraph, backend, ndarray, utils
    from dgl._ffi.ndarray import NDArrayBase
    from dgl.cuda import GPUCache
    from dgl.dataloading import dataloader
    from dgl.heterograph_index import HeteroGraphIndex as Index
    from dgl.heterograph_index import HeteroPickleStates as States

    host_ctx, copy_to = Index.ctx.fget, Index.copy_to
    get_relation, is_pinned = Index.get_relation_graph, Index.is_pinned
    restore_index, restore_states = Index.__setstate__, States.__setstate__

    def ctx(self: Any) -> Any:
        home = home_of(self)
        return host_ctx(self) if home is None else utils.to_dgl_context(home)

    def copy_to_(self: Any, ctx: Any) -> Any:
        """The C object is the same, the Python object another, with a cache of its own."""
        device = backend.to_backend_ctx(ctx)
        made = copy_to(self, utils.to_dgl_context("cpu"))
        return set_home(made, None if device.type == "cpu" else device)

    def get_relation_graph(self: Any, etype: int) -> Any:
        """The same object each time, so that what is cached with it stays."""
        key = (_RELATION, int(etype))
        if key not in self._cache:
            self._cache[key] = get_relation(self, etype)
        return self._cache[key]

    def setstate(self: Any, state: Any) -> None:
        restore_index(self, state)
        set_home(self, home_of(state))

    def setstate_of_states(self: Any, state: Any) -> None:
        restore_states(self, state)
        arrays = state[2] if isinstance(state[0], int) else ()
        devices = [array.device for array in arrays if array.device.type != "cpu"]
        set_home(self, devices[0] if devices else None)

    host_ctx_of_array = NDArrayBase.ctx.fget

    def ctx_of_array(self: Any) -> Any:
        home = home_of(self)
        return host_ctx_of_array(self) if home is None else utils.to_dgl_context(home)

    host_array = ndarray.empty

    def empty(shape: Any, dtype: Any = "float32", ctx: Any = None) -> Any:
        """Samplers make empty arrays where the graph is said to be."""
        device = backend.to_backend_ctx(ctx or utils.to_dgl_context("cpu"))
        made = host_array(shape, dtype)
        return made if device.type == "cpu" else set_home(made, device)

    def record_stream(self: Any, stream: Any) -> Any:
        """Copy the structure: loaders ask for it on the stream on which they copy all else."""
        if home_of(self) is not None:
            graph = graph_of(self)
            for etype in graph.canonical_etypes:
                dgl_structure(graph, None, etype)
        return self

    yield ndarray, "empty", empty
    yield NDArrayBase, "ctx", property(ctx_of_array, doc=NDArrayBase.ctx.__doc__)
    yield Index, "ctx", property(ctx, doc=Index.ctx.__doc__)
    yield Index, "copy_to", copy_to_
    yield Index, "get_relation_graph", get_relation_graph
    yield Index, "__setstate__", setstate
    yield States, "__setstate__", setstate_of_states
    yield Index, "pin_memory_", _refusing(PINNING)
    # As tensors have it, and graphs had it before there was `to`.
    yield DGLGraph, "cuda", lambda self, device="cuda": self.to(device)
    yield GPUCache, "__init__", _refusing(CACHING)
    yield Index, "is_pinned", lambda self: home_of(self) is None and is_pinned(self)
    # What a loader does with all that it hands out.
    yield Index, "pin_memory", lambda self: self
    yield Index, "record_stream", record_stream
    # Without this part of DGL, which lets it take the memory of torch, a loader copies nothing on a
    # stream of its own. All that is copied here is torch's.
    yield dataloader, "is_tensor_adaptor_enabled", lambda: True


def _refusing(text: str) -> Callable[..., Any]:
    def refuse(*given: Any, **named: Any) -> Any:
        raise dgl_error(text)

    return refuse
