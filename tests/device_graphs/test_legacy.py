"""Old scripts on the emulated device: all that they do to graphs goes through the seam."""

from __future__ import annotations

import contextlib
import io
import json
import sys

import dgl
import pytest
import torch

import dgl_flash
from tests.device_graphs.emulated import DEVICE, emulated_device
from tests.test_legacy import LEGACY, SCRIPTS, SMALL

pytestmark = [
    pytest.mark.filterwarnings("ignore::dgl.base.DGLWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning"),
]


def train(script: str, device: str, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Run a script that takes this device for the GPU."""
    source = (LEGACY / f"{script}.py").read_text().replace('"cuda"', f'"{DEVICE.type}"')
    monkeypatch.setattr(sys, "argv", [script, *SMALL, "--device", device])
    dgl.seed(0)
    torch.set_rng_state(torch.Generator().manual_seed(0).get_state())
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        emulated_device(),
        dgl_flash.enable_cuda(),
    ):
        exec(compile(source, script, "exec"), {"__name__": "__main__"})
    return json.loads(out.getvalue().splitlines()[-1])


@pytest.mark.parametrize("script", SCRIPTS)
def test_trains_as_on_the_host(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there, here = (train(script, device, monkeypatch) for device in (DEVICE.type, "cpu"))
    # What is sampled is drawn in other ways on a device.
    tolerance = 0.3 if script in ("graphsage_sampling", "link_prediction") else 1e-4
    assert there["loss"] == pytest.approx(here["loss"], rel=tolerance)
