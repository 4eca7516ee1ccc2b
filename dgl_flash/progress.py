"""A bar for what takes more than a few seconds, where tqdm is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(title: str, unit: str, total: int, wanted: bool) -> Iterator[Callable[[], object]]:
    """A function to call after each step; it moves a bar where there is one.

    Parameters
    ----------
    title, unit : str
        What is done, and what is counted.
    total : int
        Number of steps; fewer will do.
    wanted : bool
        Whether to show a bar.

    Yields
    ------
    callable
        Without arguments.
    """
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError:
        wanted = False
    if not wanted:
        yield lambda: None
        return
    with tqdm(total=total, desc=title, unit=unit) as bar:
        yield bar.update
        bar.update(total - bar.n)
