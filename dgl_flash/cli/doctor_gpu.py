"""What the doctor looks at for a GPU: driver, build of torch, CuPy, NVRTC, headers."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import torch

from dgl_flash.kernels.availability import why_unavailable

from .doctor_caches import kernel_cache, writable
from .doctor_findings import Findings, version_of

# First branch of the driver that runs a CUDA major; within a major any of them does.
FIRST_DRIVER = {12: 525, 13: 580}
_PROC = Path("/proc/driver/nvidia")


def look(findings: Findings) -> None:
    """Note the cards, and what keeps kernels from running on them.

    Parameters
    ----------
    findings : Findings
        Gains facts, problems and advice.
    """
    cards, driver, cuda = listed_cards(), driver_version(), driver_cuda()
    count = torch.cuda.device_count()
    if driver or cuda:
        limit = f", for CUDA up to {cuda[0]}.{cuda[1]}" if cuda else ""
        findings.fact("driver", f"{driver or 'version unknown'}{limit}")
    findings.fact("torch build", _torch_build())
    _judge_torch(findings, cards, driver, cuda, count)
    _judge_cupy(findings, count)
    explained = bool(findings.problems)
    for index in range(count):
        _look_at_card(findings, torch.device("cuda", index), explained)
    if count == 0:
        findings.fact("GPU", "none that torch can use; every op runs its reference on the CPU")


def listed_cards() -> list[str]:
    """Names of NVIDIA's cards by ``nvidia-smi``, else by the driver's own files."""
    lines = _nvidia_smi("--query-gpu=name")
    if lines:
        return lines
    found = []
    for information in sorted(_PROC.glob("gpus/*/information")):
        model = re.search(r"Model:\s*(.+)", information.read_text(errors="replace"))
        found.append(model.group(1).strip() if model else "NVIDIA card")
    return found


def driver_version() -> str | None:
    """Version of NVIDIA's kernel driver, like ``"580.65.06"``, or None."""
    try:
        text = (_PROC / "version").read_text(errors="replace")
    except OSError:
        lines = _nvidia_smi("--query-gpu=driver_version")
        return lines[0] if lines else None
    found = re.search(r"Kernel Module.*?\s(\d+\.\d[\d.]*)", text)
    return found.group(1) if found else None


def driver_cuda() -> tuple[int, int] | None:
    """Newest CUDA that the driver runs, or None without a driver."""
    number = ctypes.c_int()
    try:
        status = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return (number.value // 1000, number.value % 1000 // 10) if status == 0 else None


def cupy_distributions() -> list[str]:
    """Installed distributions that bring CuPy, for example ``["cupy-cuda13x"]``."""
    return sorted(set(metadata.packages_distributions().get("cupy", [])))


def nvrtc_version() -> str:
    """Version of the compiler that CuPy finds; whatever CuPy raises without one passes."""
    major, minor = importlib.import_module("cupy_backends.cuda.libs.nvrtc").getVersion()
    return f"{major}.{minor}"


def header_folder() -> str | None:
    """Folder with CUDA's headers: in the toolkit that CuPy finds, or in NVIDIA's wheels."""
    folders = []
    root = importlib.import_module("cupy").cuda.get_cuda_path()
    if root is not None:
        folders.append(Path(root) / "include")
    spec = importlib.util.find_spec("nvidia")
    for location in (spec and spec.submodule_search_locations) or ():
        folders += sorted(Path(location).glob("*/include"))
    found = (folder for folder in folders if (folder / "cuda_fp16.h").exists())
    return next(map(str, found), None)


def _nvidia_smi(query: str) -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, query, "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):  # a driver that does not answer
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _torch_build() -> str:
    if torch.version.cuda is not None:
        return f"for CUDA {torch.version.cuda}"
    return "for ROCm" if torch.version.hip is not None else "without CUDA"


def _judge_torch(
    findings: Findings,
    cards: list[str],
    driver: str | None,
    cuda: tuple[int, int] | None,
    count: int,
) -> None:
    if not cards:
        return
    if torch.version.cuda is None:
        findings.problem(
            f"torch {torch.__version__} is built without CUDA, although there is a card "
            f"({cards[0]})",
            "pip install --force-reinstall torch   # from the default index, not that for the CPU",
        )
        return
    needed = int(torch.version.cuda.split(".")[0])
    if cuda is not None and cuda[0] < needed:
        branch = FIRST_DRIVER.get(needed)
        findings.problem(
            f"the driver {driver or ''} runs CUDA up to {cuda[0]}.{cuda[1]}, too old for torch, "
            f"which is built for CUDA {torch.version.cuda}",
            f"sudo apt-get install nvidia-driver-{branch}   # or newer; or a torch for CUDA "
            f"{cuda[0]}"
            if branch
            else "install the newest driver of NVIDIA",
        )
    elif count == 0 and "CUDA_VISIBLE_DEVICES" in os.environ:
        findings.advise(
            f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']} hides {cards[0]}",
            "unset CUDA_VISIBLE_DEVICES",
        )
    elif count == 0:
        findings.problem(
            f"torch finds no card, although there is one ({cards[0]})",
            "restart the machine if the driver was updated; start a container with --gpus all",
        )


def _judge_cupy(findings: Findings, count: int) -> None:
    names = cupy_distributions()
    findings.fact("cupy", ", ".join(f"{version_of(n)} ({n})" for n in names) or "not installed")
    report = findings.problem if count else findings.advise
    major = torch.version.cuda.split(".")[0] if torch.version.cuda else None
    install = f'pip install "dgl_flash[cuda{major or 13}]"'
    built_for = [found.group(1) for found in map(re.compile(r"cuda(\d+)x").search, names) if found]
    if not names:
        if count:
            report("CuPy is missing, which compiles the kernels for the GPU", install)
        return
    if len(names) > 1:
        report(
            f"several CuPy are installed over each other ({', '.join(names)})",
            f"pip uninstall -y {' '.join(names)} && {install}",
        )
    elif major is not None and built_for and built_for[0] != major:
        report(
            f"{names[0]} is built for CUDA {built_for[0]}, torch for CUDA {torch.version.cuda}",
            f"pip uninstall -y {names[0]} && {install}",
        )
    _judge_compiler(findings, count, install)


def _judge_compiler(findings: Findings, count: int, install: str) -> None:
    report = findings.problem if count else findings.advise
    try:
        findings.fact("NVRTC", nvrtc_version())
    except Exception as error:  # ImportError, OSError or RuntimeError, by what is missing
        findings.fact("NVRTC", "not found")
        if writable(kernel_cache()):  # else CuPy does not import, and that is the problem
            report(f"CuPy finds no NVRTC, the compiler ({_first_line(error)})", install)
        return
    try:
        headers = header_folder()
    except Exception:  # CuPy itself is broken: the probe of the card says how
        headers = None
    findings.fact("CUDA headers", headers or "not found; the kernels of dgl_flash need none")
    if headers is None and count:
        findings.advise("CUDA's headers are missing, which kernels of CuPy itself need", install)


def _look_at_card(findings: Findings, device: torch.device, explained: bool) -> None:
    """Note a card, and what keeps kernels from it unless a problem told that already."""
    try:
        major, minor = torch.cuda.get_device_capability(device)
        findings.fact(str(device), f"{torch.cuda.get_device_name(device)}, sm_{major}{minor}")
        missing = why_unavailable(device)
    except Exception as error:  # a driver that does not start
        missing = _first_line(error)
    findings.fact("kernels", "fused kernels run" if missing is None else "reference path")
    if missing is not None and not explained:
        text, semicolon, remedy = missing.rpartition("; ")
        if not semicolon:
            text, remedy = missing, "see the lines above; on this card ops run their reference"
        findings.problem(f"{device}: {text}", remedy)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
