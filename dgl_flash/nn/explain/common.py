"""What the explainers share: DGL on demand, evaluation mode for a while, progress bars."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from dgl_flash.structure.dgl_reader import is_dgl_graph


def dgl_of(owner: object, graph: Any) -> Any:
    """DGL itself, which whoever has one of its graphs has imported already.

    Parameters
    ----------
    owner : object
        Who asks, for the text of the error.
    graph : DGLGraph
        Any graph of DGL.

    Returns
    -------
    module
        ``dgl``

    Raises
    ------
    TypeError
        If the graph is not DGL's, whose subgraphs are needed.
    """
    if not is_dgl_graph(graph):
        raise TypeError(
            f"{type(owner).__name__}: expected `graph` to be a DGLGraph, whose subgraphs are part "
            f"of the explanation, got {type(graph).__name__}"
        )
    return importlib.import_module("dgl")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluation mode, and each of its parts back to its own mode at the end."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def progress(total: int, title: str, shown: bool) -> Iterator[Callable[[], object]]:
    """Count steps, in a progress bar if it is to be shown.

    Parameters
    ----------
    total : int
        Number of steps.
    title : str
        What stands before the bar.
    shown : bool
        Whether there is a bar.

    Yields
    ------
    callable
        To be called after each step.
    """
    if not shown:
        yield lambda: None
        return
    from tqdm.auto import tqdm  # comes with DGL; not needed without a bar

    with tqdm(total=total, desc=title) as bar:
        yield bar.update


def rows(tensor: Tensor, ids: Tensor) -> Tensor:
    """Rows of a tensor; the ids may be of any integer type, on any device."""
    return tensor[ids.long().to(tensor.device)]
