"""The file of what was tuned: bounded, replaced at once, and never in the way."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from dgl_flash.kernels import tuned
from dgl_flash.kernels.layout import make_layout

LAYOUT = make_layout(1, 64, 4, vectors=1, row_slots=1, unroll=4)
PROFILE = tuned.Profile.of(1_000, 20_000, 300)


def key_of(number: int = 0, **changes: object) -> tuned.Key:
    key = tuned.Key(
        machine="Imaginary 9000 sm_90",
        op="spmm",
        num_heads=1,
        head_dim=64,
        dtype=torch.float32,
        index_dtype=torch.int32,
        profile=dataclasses.replace(PROFILE, rows=number),
    )
    return dataclasses.replace(key, **changes)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DGL_FLASH_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setattr(tuned, "_loaded", {})
    return tmp_path / "own"


def forget() -> None:
    """As if the process had just started."""
    tuned._loaded.clear()


def test_the_file_is_where_the_environment_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tuned.file() == folder / "tuned.json"
    monkeypatch.delenv("DGL_FLASH_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "xdg"))
    assert tuned.file() == folder / "xdg" / "dgl_flash" / "tuned.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(folder))
    assert tuned.file() == folder / ".cache" / "dgl_flash" / "tuned.json"


@pytest.mark.parametrize("layout", [LAYOUT, dataclasses.replace(LAYOUT, chunk=64), None])
@pytest.mark.parametrize("backend", tuned.BACKENDS)
def test_what_is_stored_is_found_in_another_process(
    layout: tuned.Layout | None, backend: str
) -> None:
    assert tuned.is_empty()
    tuned.store(key_of(), tuned.Tuned(layout, backend))
    forget()
    assert not tuned.is_empty()
    assert tuned.find(key_of()) == tuned.Tuned(layout, backend)


def test_a_second_winner_takes_the_place_of_the_first() -> None:
    tuned.store(key_of(), tuned.Tuned(None))
    tuned.store(key_of(1), tuned.Tuned(None))
    tuned.store(key_of(), tuned.Tuned(LAYOUT, "cusparse"))
    forget()
    assert tuned.find(key_of()) == tuned.Tuned(LAYOUT, "cusparse")
    assert list(json.loads(tuned.file().read_text())["entries"]) == [str(key_of(1)), str(key_of())]


def test_every_part_of_a_key_counts() -> None:
    tuned.store(key_of(), tuned.Tuned(LAYOUT))
    others = {
        "machine": "Imaginary 9000 sm_100",
        "op": "spmm WEIGHT=1",
        "num_heads": 2,
        "head_dim": 32,
        "dtype": torch.float16,
        "index_dtype": torch.int64,
        "profile": tuned.Profile.of(1_000, 20_000, 3_000),
    }
    assert others.keys() == {field.name for field in dataclasses.fields(tuned.Key)}
    for name, value in others.items():
        assert tuned.find(key_of(**{name: value})) is None, name


def test_similar_graphs_share_a_profile() -> None:
    assert tuned.Profile.of(169_343, 1_166_243, 13_155) == tuned.Profile.of(
        190_000, 1_300_000, 9_000
    )
    assert tuned.Profile.of(0, 0, 0) == tuned.Profile(0, 0, 0, 0)
    digits = tuned.Profile.of(1_000, 16_000, 400)
    assert digits == tuned.Profile(rows=10, edges=14, mean=5, longest=9)


def test_the_oldest_make_room() -> None:
    for number in range(tuned.LIMIT + 3):
        tuned.store(key_of(number), tuned.Tuned(None))
    forget()
    assert len(json.loads(tuned.file().read_text())["entries"]) == tuned.LIMIT
    assert [tuned.find(key_of(number)) for number in range(4)] == [None] * 3 + [tuned.Tuned(None)]
    assert tuned.find(key_of(tuned.LIMIT + 2)) == tuned.Tuned(None)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "null",
        '{"format": 0, "entries": {}}',
        '{"format": 1, "entries": []}',
        '{"format": 1}',
        "\x00\x01",
    ],
)
def test_a_spoiled_file_is_ignored_and_written_anew(folder: Path, content: str) -> None:
    folder.mkdir()
    tuned.file().write_text(content)
    with pytest.warns(UserWarning, match="cannot be read and is ignored"):
        assert tuned.find(key_of()) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tuned.is_empty()  # it is told once
    with pytest.warns(UserWarning, match="cannot be read"):
        tuned.store(key_of(), tuned.Tuned(LAYOUT))
    forget()
    assert tuned.find(key_of()) == tuned.Tuned(LAYOUT)


def test_no_bytes_of_text_are_ignored_too(folder: Path) -> None:
    folder.mkdir()
    tuned.file().write_bytes(b"\xff\xfe{}")
    with pytest.warns(UserWarning, match="ignored"):
        assert tuned.is_empty()


@pytest.mark.parametrize(
    "change",
    [
        {"layout": {"vector": 4}},
        {"layout": []},
        {"layout": {**dataclasses.asdict(LAYOUT), "vector": "4"}},
        {"layout": {**dataclasses.asdict(LAYOUT), "vectors": -1}},
        {"layout": {**dataclasses.asdict(LAYOUT), "head_lanes": 8}},  # half a warp
        {"layout": {**dataclasses.asdict(LAYOUT), "head_lanes": 8, "edge_slots": 4}},  # half a row
        {"layout": {**dataclasses.asdict(LAYOUT), "vector": 8}},  # loads of 32 bytes
        {"layout": {**dataclasses.asdict(LAYOUT), "unroll": 0}},
        {"layout": {**dataclasses.asdict(LAYOUT), "unroll": 3}},
        {"layout": {**dataclasses.asdict(LAYOUT), "vector": 2, "loops": 2}},  # half a row
        {"layout": {**dataclasses.asdict(LAYOUT), "slices": 2}},  # one behind the row
        {"layout": {**dataclasses.asdict(LAYOUT), "warps": 64}},
        {"layout": {**dataclasses.asdict(LAYOUT), "ahead": 2}},
        {"layout": {**dataclasses.asdict(LAYOUT), "chunk": 2**40}},
        {"backend": "abacus"},
        {"backend": None},
    ],
    ids=str,
)
def test_a_spoiled_entry_is_ignored(change: dict[str, object]) -> None:
    tuned.store(key_of(), tuned.Tuned(LAYOUT))
    tuned.store(key_of(1), tuned.Tuned(LAYOUT))
    content = json.loads(tuned.file().read_text())
    content["entries"][str(key_of())].update(change)
    tuned.file().write_text(json.dumps(content))
    forget()
    with pytest.warns(UserWarning, match="makes no sense and is ignored"):
        assert tuned.find(key_of()) is None
    assert tuned.find(key_of(1)) == tuned.Tuned(LAYOUT)


def test_a_write_that_fails_leaves_the_old_file(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned.store(key_of(), tuned.Tuned(LAYOUT))
    before = tuned.file().read_text()

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(json, "dump", fail)
    with pytest.warns(UserWarning, match=r"this process only.*disk full.*DGL_FLASH_CACHE_DIR"):
        tuned.store(key_of(1), tuned.Tuned(None, "cusparse"))
    assert tuned.find(key_of(1)) == tuned.Tuned(None, "cusparse")  # here, but not in the file
    assert tuned.file().read_text() == before
    assert sorted(path.name for path in tuned.file().parent.iterdir()) == [
        "tuned.json",
        "tuned.lock",
    ]


def test_a_folder_that_cannot_be_made_costs_a_warning_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain").write_text("no folder")
    monkeypatch.setenv("DGL_FLASH_CACHE_DIR", str(tmp_path / "plain" / "inside"))
    with pytest.warns(UserWarning, match="cannot be read|this process only"):
        tuned.store(key_of(), tuned.Tuned(LAYOUT))
    assert tuned.find(key_of()) == tuned.Tuned(LAYOUT)


WRITER = """
import dataclasses, sys
import torch
from dgl_flash.kernels import tuned
first = int(sys.argv[1])
for number in range(first, first + 40):
    profile = tuned.Profile(number, 0, 0, 0)
    key = tuned.Key("card", "spmm", 1, 64, torch.float32, torch.int32, profile)
    tuned.store(key, tuned.Tuned(None))
"""


def test_writers_at_the_same_time_lose_nothing() -> None:
    command = [sys.executable, "-W", "error", "-c", WRITER]
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    writers = [subprocess.Popen([*command, str(40 * i)], env=env, cwd=root) for i in range(3)]
    while any(writer.poll() is None for writer in writers):
        forget()
        tuned.is_empty()  # warns, hence fails, if it ever sees a part of a file
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert len(json.loads(tuned.file().read_text())["entries"]) == 120
    assert sorted(path.name for path in tuned.file().parent.iterdir()) == [
        "tuned.json",
        "tuned.lock",
    ]


def test_the_file_holds_names_and_small_numbers_only() -> None:
    tuned.store(key_of(10), tuned.Tuned(LAYOUT, "cusparse"))
    (name,) = json.loads(tuned.file().read_text())["entries"]
    assert name == (
        "Imaginary 9000 sm_90; spmm; H=1 D=64 float32 int32; "
        "<2^10 rows, <2^15 edges, <2^5 mean, <2^9 longest"
    )
    assert tuned.file().stat().st_size < 1_000


@pytest.mark.gpu
def test_the_machine_has_a_name() -> None:
    name = tuned.machine(torch.cuda.current_device())
    assert torch.cuda.get_device_name() in name
    for part in ("sm_", "driver", "CUDA", "NVRTC", "cupy", "dgl_flash"):
        assert part in name
