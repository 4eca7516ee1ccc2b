"""What is shipped, where it is found, and what importing it costs."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tests.compat.scripts import hide, run

# One worker builds and installs for all of them.
pytestmark = pytest.mark.xdist_group("packaging")

ROOT = Path(__file__).resolve().parents[1]
FIND_SOURCES = """
import json
from dgl_flash.kernels.source import source_root
root = source_root()
files = [p.relative_to(root).as_posix() for p in root.rglob("*") if p.suffix in (".cu", ".cuh")]
print(json.dumps([str(root.resolve()), sorted(files)]))
"""


def call(*command: str | Path, cwd: Path) -> str:
    """Output of a command that must succeed, unaffected by what surrounds the tests."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    result = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=240
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def not_shipped(folder: str, names: list[str]) -> list[str]:
    """What of a folder is no part of the project: environments, caches, sockets, build products."""
    return [
        name
        for name in names
        if name in ("build", "dist", "shared", "__pycache__")
        or name.endswith(".egg-info")
        or (name.startswith(".") and name != ".ci" and Path(folder, name).is_dir())
        or Path(folder, name, "pyvenv.cfg").exists()
        or not (Path(folder, name).is_file() or Path(folder, name).is_dir())
    ]


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that building leaves nothing behind."""
    return Path(
        shutil.copytree(ROOT, tmp_path_factory.mktemp("checkout") / "source", ignore=not_shipped)
    )


@pytest.fixture(scope="session")
def cuda_files(checkout: Path) -> list[str]:
    return sorted(
        path.relative_to(checkout / "cuda").as_posix()
        for path in (checkout / "cuda").rglob("*.cu*")
        if path.suffix in (".cu", ".cuh")
    )


@pytest.fixture(scope="session")
def modules(checkout: Path) -> list[str]:
    return sorted(
        path.relative_to(checkout).as_posix() for path in (checkout / "dgl_flash").rglob("*.py")
    )


@pytest.fixture(scope="session")
def dist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ".", cwd=checkout)
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture
def empty_python(tmp_path: Path) -> Path:
    """Interpreter of a new environment that sees the packages of this one, dgl_flash apart."""
    call(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    # A folder named in a .pth file is searched, but its own .pth files are not read: an editable
    # installation of dgl_flash stays invisible.
    (site / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def pip_install(python: Path, *what: str | Path) -> None:
    options = ["install", "--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
    call(sys.executable, "-m", "pip", "--python", python, *options, *what, cwd=python.parent)


def found_sources(python: Path, cwd: Path) -> tuple[Path, list[str]]:
    root, files = json.loads(call(python, "-c", FIND_SOURCES, cwd=cwd))
    return Path(root), files


def test_there_are_sources(cuda_files: list[str]) -> None:
    assert any(name.startswith("common/") for name in cuda_files)


def test_wheel_holds_every_module_and_source(
    wheel: Path, modules: list[str], cuda_files: list[str]
) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in modules if name not in names] == [], "add the package to setup.cfg"
    assert [name for name in cuda_files if f"dgl_flash/_cuda/{name}" not in names] == []
    assert "dgl_flash/py.typed" in names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"dgl_flash"}


def test_wheel_asks_for_torch_numpy_scipy_only(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    header = HeaderParser().parsestr(archive.read(metadata).decode())
    requirements = header.get_all("Requires-Dist", [])
    plain = [re.match(r"[\w-]+", text)[0] for text in requirements if "extra ==" not in text]
    assert sorted(plain) == ["numpy", "scipy", "torch"]
    extras = {"cuda12", "cuda13", "nvrtc", "dgl", "demo", "migrate", "test", "dev"}
    assert set(header.get_all("Provides-Extra")) == extras
    assert header["License-Expression"] == "Apache-2.0"


def test_constraints_pin_what_ci_installs() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].splitlines()
    for extra in ("nvrtc", "dgl", "demo", "test", "dev"):
        lines += config["options.extras_require"][extra].splitlines()
    asked = {re.match(r"[\w-]+", line)[0] for line in lines if line and line[0] != "#"}
    pins = re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert asked - {"dgl_flash"} - set(pins) == set()


def test_sdist_holds_what_building_and_testing_need(
    dist: Path, checkout: Path, modules: list[str], cuda_files: list[str]
) -> None:
    archive = next(dist.glob("*.tar.gz"))
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    tests = {
        path.relative_to(checkout).as_posix()
        for folder in ("tests", "benchmarks", "notebooks")
        for path in (checkout / folder).rglob("*")
        if path.suffix in (".py", ".ipynb", ".json", ".csv")
    }
    top = {"Makefile", "constraints.txt", "pyproject.toml", "setup.cfg", "LICENSE", ".ci/run"}
    wanted = tests | top | set(modules) | {f"cuda/{name}" for name in cuda_files}
    assert wanted - names == set()


def test_installed_wheel_finds_its_sources(
    wheel: Path, empty_python: Path, tmp_path: Path, cuda_files: list[str]
) -> None:
    pip_install(empty_python, wheel)
    installed = next((tmp_path / "env").glob("lib/python*/site-packages/dgl_flash")).resolve()
    assert found_sources(empty_python, tmp_path) == (installed / "_cuda", cuda_files)
    assert "demo" in call(empty_python.with_name("dgl-flash"), "--help", cwd=tmp_path)


def test_editable_install_finds_its_sources(
    checkout: Path, empty_python: Path, tmp_path: Path, cuda_files: list[str]
) -> None:
    pip_install(empty_python, "--editable", checkout)
    assert found_sources(empty_python, tmp_path) == (checkout.resolve() / "cuda", cuda_files)


def test_bare_checkout_finds_its_sources(
    checkout: Path, empty_python: Path, cuda_files: list[str]
) -> None:
    assert found_sources(empty_python, checkout) == (checkout.resolve() / "cuda", cuda_files)


def test_no_python_under_cuda() -> None:
    # A Python package of that name would shadow NVIDIA's and break `import cupy`.
    assert list((ROOT / "cuda").rglob("*.py")) == []


def test_import_is_cheap() -> None:
    code = """
import time, torch
start = time.perf_counter()
import dgl_flash
print(time.perf_counter() - start)
"""
    seconds = []
    while len(seconds) < 5 and min(seconds, default=1) >= 0.05:
        seconds.append(float(run(code)))
    assert min(seconds) < 0.05


def test_import_loads_nothing_optional() -> None:
    code = """
import sys, torch
before = set(sys.modules)
import dgl_flash, dgl_flash.nn, dgl_flash.ops
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(new & {"cupy", "dgl", "scipy", "networkx", "pandas", "torch_geometric"}))
"""
    assert run(code).split() == []


def test_eager_use_does_not_load_the_compiler() -> None:
    code = """
import sys, torch, dgl_flash, dgl_flash.nn
graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0])).reverse()
feat = torch.ones(3, 3, requires_grad=True)
dgl_flash.nn.GATv2Conv(3, 2, 1, attn_drop=0.5)(graph, feat).sum().backward()
print("torch._dynamo" in sys.modules)  # two seconds
"""
    assert run(code).strip() == "False"


def test_works_without_anything_optional() -> None:
    optional = ["cupy", "dgl", "networkx", "pandas", "rich", "sklearn", "torch_geometric"]
    code = """
import torch, dgl_flash, dgl_flash.nn
graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
assert dgl_flash.nn.GraphConv(3, 2)(graph, torch.ones(3, 3)).shape == (3, 2)
"""
    run(hide(*optional) + code)


def test_no_package_host_and_no_path_of_a_machine_in_the_project(checkout: Path) -> None:
    forbidden = re.compile(
        r"pypi\.org|pythonhosted\.org|anaconda\.org|download\.pytorch|wheels\.dgl|data\.dgl\.ai"
        r"|--(?:extra-)?index-url|(?<![\w.$}])/(?:home|root|work|tmp|opt|mnt|Users)/\w"
    )
    found = []
    for path in sorted(checkout.rglob("*")):
        if path.is_file() and path.suffix not in (".png", ".npz"):
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if forbidden.search(line):
                    found.append(f"{path.relative_to(checkout)}:{number}: {line.strip()[:80]}")
    assert found == []
