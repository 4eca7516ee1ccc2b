"""Where graphs are moved to: the emulated device, and CUDA."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dgl_flash.device_graphs import enable_cuda
from tests.device_graphs.emulated import emulated_device


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def home(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """A device that graphs can be on, for the time of a test."""
    if request.param == "cuda":
        with enable_cuda():
            yield torch.device("cuda", torch.cuda.current_device())
        return
    with emulated_device() as device, enable_cuda():
        yield device
