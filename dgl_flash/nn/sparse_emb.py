"""``NodeEmbedding`` is DGL's own: storage of embeddings that several processes share.

It has no computation that a kernel could do: it holds rows in shared memory or on several GPUs, and
``dgl.optim.SparseAdam`` and ``dgl.optim.SparseAdagrad`` write to it. So the name leads to the class
of DGL, which is imported when it is asked for and not before. Without DGL, or for one process,
``torch.nn.Embedding(N, D, sparse=True)`` with ``torch.optim.SparseAdam`` does the same.
"""

from __future__ import annotations

import importlib
from typing import Any

from dgl_flash.nn.missing import attribute_of

__all__ = ["NodeEmbedding"]  # noqa: F822  (see __getattr__)

_HOME = "dgl.nn.pytorch.sparse_emb"
_otherwise = attribute_of(__name__)


def __getattr__(name: str) -> Any:
    if name != "NodeEmbedding":
        return _otherwise(name)
    try:
        found = importlib.import_module(_HOME).NodeEmbedding
    # A DGL that does not fit torch fails to load with any of these.
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise ImportError(
            f"NodeEmbedding is the class of DGL, and {_HOME} cannot be imported here "
            f"({type(error).__name__}: {error}); install DGL 2.1.0 and import dgl_flash before "
            f"dgl, or use torch.nn.Embedding(num_embeddings, embedding_dim, sparse=True) with "
            f"torch.optim.SparseAdam",
            name=_HOME,
        ) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
