"""Fixtures shared by all tests, and the stamp of a full run on a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

import dgl_flash  # first, so that `import dgl` works beside a current torch
from tests import gpu_stamp

os.environ.setdefault("DGLBACKEND", "pytorch")  # keeps DGL from writing a config file


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests neither see nor change what was tuned on this machine."""
    os.environ["DGL_FLASH_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--stamp", action="store_true", help="write tests/gpu_stamp.json if this GPU run is green"
    )


class TellAtOnce:
    """Names what fails as it does: a run on a borrowed GPU may be cut before its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            reporter = self._config.pluginmanager.getplugin("terminalreporter")
            reporter.write_line(f"\nfailed: {report.nodeid}\n{report.longreprtext[-2000:]}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--stamp") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(TellAtOnce(config))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[torch.device]:
    """Every op test runs on the CPU (reference) and on CUDA (kernel, outputs poisoned).

    On CUDA without cuDNN, whose LSTM is not as exact as torch's own: that is not ours to judge.
    """
    if request.param == "cpu":
        yield torch.device("cpu")
        return
    from dgl_flash.kernels.memory import poisoned_outputs

    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
    with poisoned_outputs():
        yield torch.device("cuda", torch.cuda.current_device())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    is_worker = hasattr(config, "workerinput")  # it has seen a share of the tests only
    if config.getoption("--stamp") and not is_worker:
        counts = {
            outcome: len(terminalreporter.stats.get(outcome, []))
            for outcome in ("passed", "failed", "error", "skipped")
        }
        terminalreporter.write_line(gpu_stamp.write(counts))


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def home(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Where graphs of DGL are moved to for the time of a test: an emulated device, and CUDA."""
    if request.param == "cuda":
        with dgl_flash.enable_cuda():
            yield torch.device("cuda", torch.cuda.current_device())
        return
    from tests.device_graphs.emulated import emulated_device

    with emulated_device() as device, dgl_flash.enable_cuda():
        yield device
