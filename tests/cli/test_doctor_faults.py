"""The doctor on a machine that is ill: faults are planted in files and variables, none is acted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


class Machine:
    """This machine, with a folder that is searched before all others, and variables of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        searched = [str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join(searched)}

    def plant(self, path: str, text: str = "") -> Path:
        planted = self.folder / path
        planted.parent.mkdir(parents=True, exist_ok=True)
        planted.write_text(text)
        return planted

    def install(self, name: str, version: str, package: str) -> None:
        """What pip would write about a distribution."""
        about = f"{name.replace('-', '_')}-{version}.dist-info"
        self.plant(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        self.plant(f"{about}/top_level.txt", f"{package}\n")

    def examine(self) -> tuple[int, str]:
        """Exit status, and what comes after the facts."""
        done = subprocess.run(
            [sys.executable, "-m", "dgl_flash.cli", "doctor"],
            env=self.environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr  # CuPy warns of some faults itself
        return done.returncode, done.stdout.partition("\n\n")[2]


@pytest.fixture(params=["any", pytest.param("card", marks=pytest.mark.gpu)])
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> Machine:
    """The same for the tests of any machine and for those beside a card."""
    assert request.param == "any" or torch.cuda.device_count()
    return Machine(tmp_path)


def assert_names(found: tuple[int, str], fault: str, remedy: str, *, broken: bool) -> None:
    status, remarks = found
    problems, _, advice = remarks.partition("to get more:")
    assert status == (1 if broken else 0), remarks
    lines = (problems if broken else advice).splitlines()
    named = [number for number, line in enumerate(lines) if fault in line]
    assert named, remarks
    assert remedy in lines[named[0] + 1]


def test_a_dgl_that_does_not_import(machine: Machine) -> None:
    machine.plant("dgl/__init__.py", "raise ImportError('libdgl.so: undefined symbol: planted')")
    remedy = 'pip install --force-reinstall --no-deps "dgl==2.1.0"'
    assert_names(machine.examine(), "undefined symbol: planted", remedy, broken=True)


def test_a_dgl_of_another_version(machine: Machine) -> None:
    machine.install("dgl", "2.4.0", "dgl")
    fault = "DGL 2.4.0 is not tested, 2.1.0 and 1.1.3 are"
    assert_names(machine.examine(), fault, 'pip install "dgl==2.1.0"', broken=False)


def test_a_card_that_torch_cannot_use(machine: Machine) -> None:
    """On a machine without one: here is a program that lists one."""
    if torch.cuda.device_count():
        machine.environ["CUDA_VISIBLE_DEVICES"] = ""
        assert_names(machine.examine(), "hides", "unset CUDA_VISIBLE_DEVICES", broken=False)
        return
    machine.environ.pop("CUDA_VISIBLE_DEVICES", None)
    program = machine.plant("programs/nvidia-smi", "#!/bin/sh\necho Imaginary 9000\n")
    program.chmod(0o755)
    machine.environ["PATH"] = f"{program.parent}{os.pathsep}{machine.environ['PATH']}"
    faults = {
        True: ("although there is a card (Imaginary 9000)", "pip install --force-reinstall torch"),
        False: ("torch finds no card, although there is one (Imaginary 9000)", "--gpus all"),
    }
    assert_names(machine.examine(), *faults[torch.version.cuda is None], broken=True)


def test_two_cupys(machine: Machine) -> None:
    for major in (11, 12):
        machine.install(f"cupy-cuda{major}x", "14.0.0", "cupy")
    remedy = "pip uninstall -y cupy-cuda11x cupy-cuda12x"
    there_is_a_card = torch.cuda.device_count() > 0
    fault = "several CuPy are installed over each other"
    assert_names(machine.examine(), fault, remedy, broken=there_is_a_card)


def test_a_cache_where_nothing_can_be_written(machine: Machine) -> None:
    machine.environ["DGL_FLASH_CACHE_DIR"] = str(machine.plant("file"))
    fault, remedy = "what dgl_flash.tune finds cannot be kept in", "export DGL_FLASH_CACHE_DIR="
    assert_names(machine.examine(), fault, remedy, broken=False)


@pytest.mark.gpu
def test_a_kernel_cache_where_nothing_can_be_written(machine: Machine) -> None:
    machine.environ["CUPY_CACHE_DIR"] = str(machine.plant("file") / "cache")
    fault, remedy = "CuPy cannot write compiled kernels to", "export CUPY_CACHE_DIR="
    assert_names(machine.examine(), fault, remedy, broken=True)


@pytest.mark.gpu
def test_a_cupy_that_does_not_import(machine: Machine) -> None:
    for package in ("cupy", "cupy_backends"):
        machine.plant(f"{package}/__init__.py", "raise ImportError('libnvrtc.so.13: planted')")
    assert_names(machine.examine(), "libnvrtc.so.13: planted", "pip install", broken=True)
