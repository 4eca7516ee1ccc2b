"""Device code that has not run on a GPU is not done."""

from __future__ import annotations

import json

from tests import gpu_stamp


def test_the_kernels_are_those_of_the_last_green_gpu_run() -> None:
    stamp = json.loads(gpu_stamp.STAMP.read_text())
    assert stamp["failed"] == stamp["error"] == 0 < stamp["passed"]
    assert stamp["device_code_sha256"] == gpu_stamp.device_code_hash(), (
        "cuda/ or its launch code changed since the last GPU run: run `make gpu-test` on a GPU"
    )
