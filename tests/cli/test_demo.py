"""The demo, from the function and from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dgl_flash.cli import main
from dgl_flash.demo import MODELS, QUANTITIES, DemoError, DemoResult, load_data, run_demo
from dgl_flash.demo import run as run_module
from dgl_flash.demo.memory import peak_memory
from dgl_flash.demo.run import summarize
from dgl_flash.ops.dispatch import Choice

SMALL = {"epochs": 4, "hidden": 4, "heads": 2, "k": 3, "seed": 1}
SMALL_FLAGS = [f"--{name}={value}" for name, value in SMALL.items()]


@pytest.fixture(scope="module")
def result() -> DemoResult:
    return run_demo("digits", device="cpu", **SMALL)


@pytest.fixture
def stored_graph(tmp_path: Path) -> Path:
    """Two classes, told apart by their features and their neighbours."""
    rng = np.random.default_rng(0)
    label = np.arange(60) % 2
    src = rng.integers(0, 30, 200) * 2
    dst = rng.integers(0, 30, 200) * 2
    odd = np.arange(200) % 2
    x = label[:, None] + 0.1 * rng.standard_normal((60, 5))
    np.savez(tmp_path / "two.npz", num_nodes=60, src=src + odd, dst=dst + odd, y=label, x=x)
    return tmp_path / "two.npz"


def test_both_libraries_train_alike(result: DemoResult) -> None:
    assert result.libraries == ("dgl.nn", "dgl_flash.nn")
    for model in MODELS:
        theirs, ours = result.run(model, "dgl.nn"), result.run(model, "dgl_flash.nn")
        assert theirs is not None and ours is not None
        assert len(ours.trained.losses) == 4
        assert ours.trained.losses[-1] < ours.trained.losses[0]
        difference = result.loss_difference(model)
        assert difference is not None and difference < 1e-4
        assert abs(theirs.trained.accuracy - ours.trained.accuracy) < 0.01


def test_every_quantity_of_every_run_is_reported(result: DemoResult) -> None:
    rows = result.rows()
    assert [row[:2] for row in rows] == [(m, quantity) for m in MODELS for quantity in QUANTITIES]
    table = {(model, quantity): values for model, quantity, *values in rows}
    for model in MODELS:
        assert all(value.endswith(" %") for value in table[model, "test accuracy"])
        assert table[model, "largest loss difference"][0] == "–"
        assert float(table[model, "largest loss difference"][1]) < 1e-4
        assert all(float(value) > 0 for value in table[model, "seconds an epoch"])
        assert all(float(value.split()[0]) > 0 for value in table[model, "peak memory"])
        assert table[model, "device"] == ["cpu", "cpu"]
        assert table[model, "kernels"][0] == "DGL's own"
    assert "gatv2, edge_softmax, spmm: reference" in table["GATv2", "kernels"][1]
    assert "spmm: reference" in table["GCN", "kernels"][1]


def test_the_run_is_repeatable(result: DemoResult) -> None:
    again = run_demo("digits", device="cpu", **SMALL)
    for first, second in zip(result.runs, again.runs, strict=True):
        assert first.trained.losses == pytest.approx(second.trained.losses, abs=1e-5)
        assert first.trained.peak_memory == second.trained.peak_memory


def test_without_dgl_it_trains_alone_and_says_so(
    result: DemoResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "import_dgl", lambda: (None, "DGL is not installed"))
    alone = run_demo("digits", device="cpu", **SMALL)
    assert alone.libraries == ("dgl_flash.nn",)
    assert any("DGL is not installed" in note for note in alone.notes)
    for model in MODELS:
        assert alone.loss_difference(model) is None
        ours, before = alone.run(model, "dgl_flash.nn"), result.run(model, "dgl_flash.nn")
        assert ours is not None and before is not None
        # Same seed, same weights: DGL is not needed to start from where DGL starts.
        assert ours.trained.losses == pytest.approx(before.trained.losses, abs=1e-4)
    assert len(alone.rows()[0]) == 3


@pytest.mark.parametrize("dgl_has_cuda", [True, False])
def test_a_dgl_without_cuda_trains_on_the_cpu_and_the_notes_say_so(
    dgl_has_cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FakeError(Exception):
        pass

    class FakeGraph:
        def to(self, device: torch.device) -> str:
            if not dgl_has_cuda:
                raise FakeError("Device API cuda is not enabled")
            return f"graph on {device}"

    cpu_graph = FakeGraph()
    fake = SimpleNamespace(
        __version__="0.0", DGLError=FakeError, graph=lambda *args, **kwargs: cpu_graph
    )
    monkeypatch.setattr(run_module, "import_dgl", lambda: (fake, ""))
    (theirs, ours), notes = run_module._sides(load_data("digits", k=2), torch.device("cuda"))
    assert (ours.graph, ours.device.type) == (cpu_graph, "cuda")
    if dgl_has_cuda:
        assert (theirs.graph, theirs.device.type) == ("graph on cuda", "cuda")
    else:
        assert (theirs.graph, theirs.device.type) == (cpu_graph, "cpu")
    assert any("built without CUDA" in note for note in notes) == (not dgl_has_cuda)


def test_json_holds_everything(result: DemoResult, tmp_path: Path) -> None:
    result.write_json(tmp_path / "result.json")
    read = json.loads((tmp_path / "result.json").read_text())
    assert read["data"]["nodes"] == 1797
    assert read["settings"]["epochs"] == 4
    assert [run["library"] for run in read["runs"]] == ["dgl.nn", "dgl_flash.nn"] * 2
    assert len(read["runs"][0]["trained"]["losses"]) == 4
    assert set(read["loss_difference"]) == set(MODELS)


def test_progress_is_told_each_epoch() -> None:
    seen: list[tuple[str, str, int]] = []
    run_demo(
        **{**SMALL, "epochs": 2},
        device="cpu",
        progress=lambda model, library, epoch, loss: seen.append((model, library, epoch)),
    )
    libraries = ("dgl.nn", "dgl_flash.nn")
    assert seen == [
        (m, library, epoch) for m in MODELS for library in libraries for epoch in (0, 1)
    ]


@pytest.mark.parametrize("wrong", ["epochs", "hidden", "heads"])
def test_sizes_must_be_positive(wrong: str) -> None:
    with pytest.raises(DemoError, match="must be positive"):
        run_demo(**{**SMALL, wrong: 0})


@pytest.mark.parametrize(
    ("device", "message"),
    [("tpu9", "unknown device"), ("meta", "not supported"), ("cuda:99", "there is no device")],
)
def test_devices_that_are_not_there(device: str, message: str) -> None:
    with pytest.raises(DemoError, match=message):
        run_demo(**SMALL, device=device)


def test_choices_are_condensed() -> None:
    fused = Choice("gatv2", "fused", kernels=("gatv2_forward",))
    slow = Choice("spmm", "reference", reasons=("first", "second"))
    same = Choice("u_dot_v", "reference", reasons=("first", "second"))
    assert summarize([fused, slow, fused, same, slow]) == (
        "gatv2: fused (gatv2_forward)",
        "spmm, u_dot_v: reference (first; second)",
    )


def test_peak_memory_counts_what_lives_at_once(device: torch.device) -> None:
    def call() -> None:
        first = torch.ones(1 << 18, device=device)  # 1 MiB
        second = first + 1
        del first
        second.neg_()
        torch.ones(1 << 17, device=device)

    for _ in range(2):  # the second run must not seem free
        assert 2 << 20 <= peak_memory(call, device) < (2 << 20) + 4096


@pytest.mark.gpu
def test_cuda_runs_the_fused_kernels() -> None:
    pytest.importorskip("sklearn")
    result = run_demo("digits", device="cuda", **SMALL)
    for model in MODELS:
        difference = result.loss_difference(model)
        assert difference is not None and difference < 1e-3
        ours = result.run(model, "dgl_flash.nn")
        assert ours is not None
        assert ours.device == torch.cuda.get_device_name()
        assert all("fused" in line for line in ours.kernels)


def test_command_prints_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    target = tmp_path / "out.json"
    assert main(["demo", "--device=cpu", f"--json={target}", *SMALL_FLAGS]) == 0
    out = capsys.readouterr().out
    for text in ("digits", "1,797 nodes", "dgl.nn", "dgl_flash.nn", *MODELS, *QUANTITIES):
        assert text in out
    assert "100%" in out  # the progress bar
    assert json.loads(target.read_text())["settings"]["hidden"] == 4


def test_command_reads_a_stored_graph(
    capsys: pytest.CaptureFixture[str], stored_graph: Path
) -> None:
    assert main(["demo", "--device=cpu", f"--npz={stored_graph}", *SMALL_FLAGS]) == 0
    out = capsys.readouterr().out
    assert "two: 60 nodes" in out
    assert "two.npz has no split" in out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--npz=absent.npz"], "there is no file absent.npz"),
        (["--device=cuda:99"], "there is no device cuda:99"),
        (["--json=absent/folder/out.json"], "cannot write absent/folder/out.json"),
    ],
)
def test_command_fails_with_one_line(
    flags: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *SMALL_FLAGS, *flags]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"dgl-flash: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dataset=letters"], "invalid choice: 'letters'"),
        (["--epochs=0"], "must be at least 1, got 0"),
        (["--epochs=many"], "invalid positive_int value: 'many'"),
        (["--dataset=cora", "--npz=x.npz"], "not allowed with argument"),
    ],
)
def test_command_refuses_wrong_arguments(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["demo", *flags])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_command_without_rich_names_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["demo"]) == 1
    err = capsys.readouterr().err
    assert "'rich'" in err
    assert 'pip install "dgl_flash[demo]"' in err
