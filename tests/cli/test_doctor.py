"""The doctor: facts, remedies, and the exit status."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
import torch

import dgl_flash
from dgl_flash.cli import doctor, main


def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


def fake_gpu(monkeypatch: pytest.MonkeyPatch, reason: str | None) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Imaginary 9000")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(doctor, "why_unavailable", lambda device: reason)


def test_prints_versions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_gpu(monkeypatch)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = {name: rest.strip() for name, rest in (line.split("  ", 1) for line in printed)}
    assert lines["dgl_flash"] == dgl_flash.__version__
    assert lines["torch"] == metadata.version("torch")
    assert lines["dgl"] == metadata.version("dgl")
    assert lines["GPU"].startswith("none")
    assert "cupy" in lines


def test_missing_packages_come_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    no_gpu(monkeypatch)
    absent = {"dgl", "rich"}
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in absent else real(name))
    found = doctor.diagnose()
    assert found.healthy
    assert dict(found.facts)["dgl"] == "not installed"
    assert [remedy.split(" (")[0] for remedy in found.remedies] == [
        'dgl: pip install "dgl_flash[dgl]"',
        'rich: pip install "dgl_flash[demo]"',
    ]


def test_a_broken_dgl_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    no_gpu(monkeypatch)
    monkeypatch.setattr(doctor, "import_dgl", lambda: (None, "DGL is installed but broken"))
    assert dict(doctor.diagnose().facts)["import dgl"] == "DGL is installed but broken"


def test_a_gpu_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpu(monkeypatch, None)
    found = doctor.diagnose()
    assert found.healthy
    assert dict(found.facts)["cuda:0"] == "Imaginary 9000, sm_90"
    assert dict(found.facts)["kernels"] == "fused kernels run"


def test_a_gpu_that_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpu(monkeypatch, "CuPy cannot be imported; pip install 'dgl_flash[cuda13]'")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "reference path" in out
    assert "- cuda:0: CuPy cannot be imported; pip install 'dgl_flash[cuda13]'" in out


def test_runs_as_a_module() -> None:
    command = [sys.executable, "-W", "error", "-m", "dgl_flash.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"dgl_flash {dgl_flash.__version__}"
    assert done.stderr == ""
