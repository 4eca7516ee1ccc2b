"""Bars where tqdm is installed, none elsewhere."""

from __future__ import annotations

import builtins
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dgl_flash.progress import progress_bar


def test_a_bar_moves_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Bar:
        n = 0

        def __init__(self, **options: Any) -> None:
            seen.append(options["total"])

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *error: object) -> None:
            seen.append("closed")

        def update(self, count: int = 1) -> None:
            self.n += count
            seen.append(self.n)

    monkeypatch.setitem(sys.modules, "tqdm.auto", SimpleNamespace(tqdm=Bar))
    with progress_bar("title", "unit", 5, True) as step:
        step()
        step()
    assert seen == [5, 1, 2, 5, "closed"]
    seen.clear()
    with progress_bar("title", "unit", 5, False) as step:
        step()
    assert seen == []


def test_no_bar_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("tqdm"):
            raise ModuleNotFoundError("no tqdm")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with progress_bar("title", "unit", 5, True) as step:
        step()
