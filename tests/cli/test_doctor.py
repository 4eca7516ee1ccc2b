"""The doctor: facts, problems with their remedies, and the exit status."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import dgl_flash
import dgl_flash.nn as ours
from dgl_flash.cli import (
    doctor,
    doctor_caches,
    doctor_dgl,
    doctor_findings,
    doctor_gpu,
    doctor_smoke,
    main,
)
from dgl_flash.cli.doctor_findings import Findings


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a card, whatever this one is; DGL and the smoke run are the real ones."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    set_up(monkeypatch, cards=[], driver=None, cuda=None, cupy=[])
    monkeypatch.setattr(doctor_gpu, "header_folder", lambda: "headers")
    monkeypatch.setattr(doctor_gpu, "nvrtc_version", lambda: "13.0")


def set_up(monkeypatch: pytest.MonkeyPatch, **found: Any) -> None:
    functions = {
        "cards": "listed_cards",
        "driver": "driver_version",
        "cuda": "driver_cuda",
        "cupy": "cupy_distributions",
    }
    for name, value in found.items():
        monkeypatch.setattr(doctor_gpu, functions[name], lambda value=value: value)


def with_gpu(
    monkeypatch: pytest.MonkeyPatch, torch_cuda: str | None = "13.0", reason: str | None = None
) -> None:
    """A card that works, with a CuPy that fits."""
    set_up(monkeypatch, cards=["Imaginary 9000"], driver="580.65.06", cuda=(13, 0))
    set_up(monkeypatch, cupy=["cupy-cuda13x"])
    monkeypatch.setattr(torch.version, "cuda", torch_cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1 if torch_cuda else 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Imaginary 9000")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(doctor_gpu, "why_unavailable", lambda device: reason)
    monkeypatch.setattr(doctor_gpu, "version_of", lambda name: "14.2.0")
    monkeypatch.setattr(doctor_smoke, "try_layer", lambda device: None)


def only_problem(diagnosis: doctor.Diagnosis) -> tuple[str, str]:
    assert len(diagnosis.problems) == 1, diagnosis.problems
    assert not diagnosis.healthy
    return diagnosis.problems[0].text, diagnosis.problems[0].remedy


def test_prints_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out.split("\n\n")[0].splitlines()
    lines = {name: rest.strip() for name, rest in (line.split("  ", 1) for line in printed)}
    assert lines["dgl_flash"] == dgl_flash.__version__
    assert lines["torch"] == metadata.version("torch")
    assert lines["torch build"] == "without CUDA"
    assert lines["dgl"] == metadata.version("dgl")
    assert lines["import dgl"] == "works"
    assert lines["GPU"].startswith("none")
    assert lines["cupy"] == "not installed"
    assert lines["GATv2Conv on cpu"].startswith("agrees with the formula (")


def test_missing_packages_come_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str | None:
        return None if name in ("dgl", "rich") else doctor_findings.version_of(name)

    for module in (doctor, doctor_dgl):
        monkeypatch.setattr(module, "version_of", version)
    found = doctor.diagnose()
    assert found.healthy
    assert dict(found.facts)["dgl"] == "not installed"
    assert [remark.remedy for remark in found.advice] == [
        'pip install "dgl_flash[dgl]"',
        'pip install "dgl_flash[demo]"',
    ]
    assert "to get more:\n- DGL is not installed: train on a DGLGraph" in str(found)


def test_a_gpu_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch)
    monkeypatch.setattr(doctor_dgl, "dgl_has_cuda", lambda: False)
    found = doctor.diagnose()
    facts = dict(found.facts)
    assert found.healthy, found.problems
    assert facts["driver"] == "580.65.06, for CUDA up to 13.0"
    assert facts["torch build"] == "for CUDA 13.0"
    assert facts["cupy"] == "14.2.0 (cupy-cuda13x)"
    assert facts["NVRTC"] == "13.0"
    assert facts["CUDA headers"] == "headers"
    assert facts["cuda:0"] == "Imaginary 9000, sm_90"
    assert facts["kernels"] == "fused kernels run"
    assert facts["dgl on CUDA"] == "no; dgl_flash.enable_cuda() lets graphs go there"
    assert facts["GATv2Conv on cuda:0"].startswith("agrees")
    monkeypatch.setattr(doctor_dgl, "dgl_has_cuda", lambda: True)
    assert dict(doctor.diagnose().facts)["dgl on CUDA"] == "yes"


# The faults, each with what mends it.


def test_a_gpu_without_cupy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpu(monkeypatch, reason="CuPy cannot be imported (no module); pip install something")
    set_up(monkeypatch, cupy=[])
    text, remedy = only_problem(doctor.diagnose())
    assert text.startswith("CuPy is missing")
    assert remedy == 'pip install "dgl_flash[cuda13]"'
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "reference path" in out
    assert "\nbroken:\n- CuPy is missing, which compiles the kernels for the GPU\n    pip " in out


@pytest.mark.parametrize(("cupy", "cuda"), [("12", "13.0"), ("13", "12.8")])
def test_a_cupy_for_another_cuda(cupy: str, cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, cuda)
    set_up(monkeypatch, cupy=[f"cupy-cuda{cupy}x"])
    text, remedy = only_problem(doctor.diagnose())
    assert text == f"cupy-cuda{cupy}x is built for CUDA {cupy}, torch for CUDA {cuda}"
    extra = f"cuda{cuda[:2]}"
    assert remedy == f'pip uninstall -y cupy-cuda{cupy}x && pip install "dgl_flash[{extra}]"'


def test_two_cupys(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch)
    set_up(monkeypatch, cupy=["cupy-cuda12x", "cupy-cuda13x"])
    text, remedy = only_problem(doctor.diagnose())
    assert "several CuPy are installed over each other" in text
    assert remedy.startswith("pip uninstall -y cupy-cuda12x cupy-cuda13x && pip install ")


def test_a_torch_without_cuda_beside_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, torch_cuda=None)
    text, remedy = only_problem(doctor.diagnose())
    assert "is built without CUDA, although there is a card (Imaginary 9000)" in text
    assert remedy.startswith("pip install --force-reinstall torch ")


def test_a_driver_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, reason="torch finds no usable CUDA driver or card")
    set_up(monkeypatch, driver="535.104.05", cuda=(12, 2))
    text, remedy = only_problem(doctor.diagnose())
    assert text.startswith("the driver 535.104.05 runs CUDA up to 12.2, too old for torch")
    assert remedy.startswith("sudo apt-get install nvidia-driver-580 ")


def test_a_driver_within_the_same_major_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, "13.2")
    assert doctor.diagnose().healthy


def test_a_card_that_torch_does_not_find(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    text, remedy = only_problem(doctor.diagnose())
    assert text == "torch finds no card, although there is one (Imaginary 9000)"
    assert "--gpus all" in remedy
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = doctor.diagnose()
    assert found.healthy
    assert "unset CUDA_VISIBLE_DEVICES" in [remark.remedy for remark in found.advice]


def test_no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise RuntimeError("CuPy failed to load libnvrtc.so.13: OSError\nand much more")

    with_gpu(monkeypatch, reason="NVRTC or the driver refuses a test kernel; pip install x")
    monkeypatch.setattr(doctor_gpu, "nvrtc_version", missing)
    text, remedy = only_problem(doctor.diagnose())
    assert "no NVRTC, the compiler (CuPy failed to load libnvrtc.so.13: OSError)" in text
    assert remedy == 'pip install "dgl_flash[cuda13]"'


def test_no_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch)
    monkeypatch.setattr(doctor_gpu, "header_folder", lambda: None)
    found = doctor.diagnose()
    assert found.healthy  # the kernels of dgl_flash include none
    remark = next(remark for remark in found.advice if "headers" in remark.text)
    assert remark.remedy == 'pip install "dgl_flash[cuda13]"'


def test_kernels_that_do_not_run_for_another_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, reason="NVRTC refuses a test kernel (x; y); pip install 'z' helps")
    found = only_problem(doctor.diagnose())
    assert found == ("cuda:0: NVRTC refuses a test kernel (x; y)", "pip install 'z' helps")
    with_gpu(monkeypatch, reason="card has compute capability 6.1, kernels need 7.0")
    text, remedy = only_problem(doctor.diagnose())
    assert "compute capability 6.1" in text and "ops run their reference" in remedy


def test_a_card_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: torch.device) -> None:
        raise RuntimeError("unknown error 999")

    with_gpu(monkeypatch)
    monkeypatch.setattr(torch.cuda, "get_device_capability", broken)
    assert only_problem(doctor.diagnose())[0] == "cuda:0: unknown error 999"


def test_a_broken_dgl_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_dgl, "import_dgl", lambda: (None, "DGL is installed but broken"))
    found = doctor.diagnose()
    assert dict(found.facts)["import dgl"] == "DGL is installed but broken"
    text, remedy = only_problem(found)
    assert text == "DGL is installed but broken"
    assert remedy.startswith('pip install --force-reinstall --no-deps "dgl==2.1.0" && ')


def test_an_untested_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_dgl, "version_of", lambda name: "2.4.0+cu121")
    found = doctor.diagnose()
    assert found.healthy
    assert [(remark.text, remark.remedy) for remark in found.advice] == [
        ("DGL 2.4.0 is not tested, 2.1.0 and 1.1.3 are", 'pip install "dgl==2.1.0"')
    ]


@pytest.mark.parametrize("version", ["2.1.0", "2.1.0+cu121", "1.1.3"])
def test_tested_dgls(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_dgl, "version_of", lambda name: version)
    assert doctor.diagnose().advice == ()


def test_dgl_before_dgl_flash(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"dgl": SimpleNamespace(), **sys.modules}
    monkeypatch.setattr(doctor_dgl, "sys", SimpleNamespace(modules=modules))
    found = doctor.diagnose()
    assert found.healthy  # it has worked here
    assert [remark.remedy for remark in found.advice] == [
        "write `import dgl_flash` above the first `import dgl`"
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\0libc.so.6\0libcublas.so.12\0", "for CUDA 12"),
        (b"\0libc.so.6\0", "for the CPU alone"),
        (None, "unknown: it has no libdgl.so"),
    ],
    ids=["cuda", "cpu", "none"],
)
def test_the_build_of_dgl(
    content: bytes | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "libdgl.so").write_bytes(content)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    assert doctor_dgl.build() == expected


def test_a_kernel_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "cache"  # not even root can write there
    monkeypatch.setenv("CUPY_CACHE_DIR", str(folder))

    def no_import() -> str:
        raise NotADirectoryError(folder)

    with_gpu(monkeypatch, reason="CuPy cannot be imported (...); pip install in vain")
    monkeypatch.setattr(doctor_gpu, "nvrtc_version", no_import)
    found = doctor.diagnose()
    text, remedy = only_problem(found)
    assert text == f"CuPy cannot write compiled kernels to {folder}"
    assert remedy.startswith('export CUPY_CACHE_DIR="$(mktemp -d)"')
    assert dict(found.facts)["kernel cache"].endswith("NOT WRITABLE")
    set_up(monkeypatch, cupy=[])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert doctor.diagnose().healthy  # nothing is compiled then


def test_a_tuning_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DGL_FLASH_CACHE_DIR", str(tmp_path / "file"))
    found = doctor.diagnose()
    assert found.healthy
    assert found.advice[0].remedy.startswith('export DGL_FLASH_CACHE_DIR="$(mktemp -d)"')


def test_size_of_the_kernel_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "kernel.cubin").write_bytes(bytes(2**20))
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    findings = Findings()
    doctor_caches.look(findings, compiles=True)
    assert findings.facts[0] == ("kernel cache", f"{tmp_path}: 1 files, 1.0 MiB, writable")
    monkeypatch.delenv("CUPY_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert doctor_caches.kernel_cache() == tmp_path / ".cupy" / "kernel_cache"


def test_a_wrong_layer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(ours.GATv2Conv):
        def forward(self, graph: Any, feat: Any) -> Any:
            return 1.001 * super().forward(graph, feat)

    monkeypatch.setattr(ours, "GATv2Conv", Wrong)
    text, remedy = only_problem(doctor.diagnose())
    assert text.startswith("a small GATv2Conv on cpu is wrong: result output: differs by 0.00")
    assert remedy.startswith("pip install --force-reinstall")


def test_a_layer_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: nn.Module, *args: Any) -> None:
        raise OSError("cannot load kernel")

    monkeypatch.setattr(ours.GATv2Conv, "forward", fail)
    text, _ = only_problem(doctor.diagnose())
    assert text == "a small GATv2Conv on cpu fails with OSError: cannot load kernel"


def test_a_layer_that_fails_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch)
    monkeypatch.setattr(doctor_smoke, "try_layer", lambda device: "is wrong")
    text, remedy = only_problem(doctor.diagnose())
    assert text == "a small GATv2Conv on cuda:0 is wrong"
    assert remedy.startswith(f'rm -r "{doctor_caches.kernel_cache()}"')
    set_up(monkeypatch, cupy=[])
    found = doctor.diagnose()
    assert [remark.remedy for remark in found.problems] == [
        'pip install "dgl_flash[cuda13]"',
        "mend what stands above first",
    ]


@pytest.mark.gpu
def test_the_layer_on_a_gpu() -> None:
    assert doctor_smoke.try_layer(torch.device("cuda", 0)) is None


def test_runs_as_a_module() -> None:
    command = [sys.executable, "-W", "error", "-m", "dgl_flash.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"dgl_flash {dgl_flash.__version__}"
    assert done.stderr == ""
