"""What the doctor reads of a machine: driver, cards, CUDA's headers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from dgl_flash.cli import doctor_gpu


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\nGCC",
            "535.104.05",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release",
            "580.65.06",
        ),
        ("something else", None),
    ],
    ids=["closed", "open", "other"],
)
def test_driver_version(
    text: str, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version").write_text(text)
    monkeypatch.setattr(doctor_gpu, "_PROC", tmp_path)
    assert doctor_gpu.driver_version() == version


def test_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_gpu, "_PROC", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor_gpu.listed_cards() == []
    (tmp_path / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (tmp_path / "gpus" / "0000:01:00.0" / "information").write_text("Model: \t NVIDIA H200\nIRQ: 1")
    assert doctor_gpu.listed_cards() == ["NVIDIA H200"]
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA L4'\necho 'NVIDIA T4'\n")
    program.chmod(0o755)
    assert doctor_gpu.listed_cards() == ["NVIDIA L4", "NVIDIA T4"]
    assert doctor_gpu.driver_version() == "NVIDIA L4"  # what the program answers to any question
    program.write_text("#!/bin/sh\nexit 9\n")
    assert doctor_gpu.listed_cards() == ["NVIDIA H200"]


def test_what_this_machine_has_can_be_read() -> None:
    assert isinstance(doctor_gpu.listed_cards(), list)
    assert "." in (doctor_gpu.driver_version() or ".")
    assert len(doctor_gpu.driver_cuda() or (0, 0)) == 2
    for name in doctor_gpu.cupy_distributions():
        assert name.startswith("cupy")


def test_headers_of_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = SimpleNamespace(cuda=SimpleNamespace(get_cuda_path=lambda: str(tmp_path / "toolkit")))
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    importlib = SimpleNamespace(
        import_module=lambda name: cupy, util=SimpleNamespace(find_spec=lambda name: spec)
    )
    monkeypatch.setattr(doctor_gpu, "importlib", importlib)
    assert doctor_gpu.header_folder() is None
    for folder in (tmp_path / "nvidia" / "cuda_runtime", tmp_path / "toolkit"):
        (folder / "include").mkdir(parents=True)
        (folder / "include" / "cuda_fp16.h").touch()
        assert doctor_gpu.header_folder() == str(folder / "include")
