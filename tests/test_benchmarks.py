"""The benchmarks at tiny size: what they measure, and what they write."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks import cases, graphs, launch_overhead, paths, plots, run, targets
from benchmarks.timing import WARM_UP, Timer, Timing
from benchmarks.yardstick import yardstick_ms
from dgl_flash import ops
from dgl_flash.structure import GraphStructure

CPU = torch.device("cpu")
TINY = [name for name in graphs.OWN if name.startswith("tiny")]


def degrees(name: str) -> torch.Tensor:
    return graphs.load(name, CPU).struct.in_degrees()


@pytest.mark.parametrize("name", [*TINY, "cora"])
def test_generators_are_seeded_and_stay_in_range(name: str) -> None:
    src, dst, nodes = graphs.OWN[name]()
    again, _, _ = graphs.OWN[name]()
    assert torch.equal(src, again)
    assert src.shape == dst.shape
    assert int(torch.minimum(src, dst).min()) >= 0
    assert int(torch.maximum(src, dst).max()) < nodes


def test_generators_have_the_shape_they_promise() -> None:
    src, dst, nodes = graphs.OWN["cora"]()
    assert (nodes, src.numel()) == (2_708, 10_600)
    assert torch.unique(dst * nodes + src).numel() == src.numel()
    assert degrees("cora").max() > 10 * degrees("cora").float().mean()  # skewed
    assert sorted(set(degrees("tiny-grid").tolist())) == [2, 3, 4]
    assert degrees("tiny-clusters").float().mean() > 15
    assert degrees("tiny-molecules").max() < 9


def test_suite_falls_back_to_the_own_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "find_shared", lambda name: None)
    monkeypatch.setitem(graphs.OWN, "road", lambda: graphs.grid(4))
    road = graphs.load("road", CPU)
    assert (road.source, road.struct.num_edges) == ("own", 48)
    with pytest.raises(ValueError, match="unknown graph 'nowhere'; choose from arxiv"):
        graphs.load("nowhere", CPU)


def test_shared_generators_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "graphs.py").write_text(
        "import torch\n"
        "def load(name, device):\n"
        "    return torch.tensor([0]), torch.tensor([1]), 2\n"
    )
    monkeypatch.setenv("DGL_FLASH_SHARED", str(tmp_path))
    road = graphs.load("road", CPU)
    assert (road.source, road.struct.num_edges) == ("shared", 1)
    assert graphs.load("tiny", CPU).source == "own"
    # Too large to be measured unless asked for, but of the same family.
    assert graphs.load("reddit", CPU).source == "shared"
    assert "reddit" in graphs.OWN and "reddit" not in graphs.SUITE


def test_shared_folders_are_looked_for_in_three_places(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = tmp_path / "checkout"
    monkeypatch.delenv("DGL_FLASH_SHARED", raising=False)
    monkeypatch.setattr(paths, "ROOT", root)
    assert paths.find_shared("data") is None
    for place in (root / ".gpu", tmp_path / "shared", tmp_path / "elsewhere"):
        (place / "data").mkdir(parents=True)
        if place.name == "elsewhere":
            monkeypatch.setenv("DGL_FLASH_SHARED", str(place))
        assert paths.find_shared("data") == place / "data"


def test_timer_repeats_and_orders(device: torch.device) -> None:
    calls = []
    timing = Timer(device, repeats=5)(lambda: calls.append(torch.ones(10, device=device)))
    assert len(calls) == WARM_UP + 5
    assert 0 < timing.p20_ms <= timing.median_ms <= timing.p80_ms


def test_timer_sees_the_call() -> None:
    long = torch.ones(2_000_000)
    timer = Timer(CPU, repeats=5)
    assert timer(lambda: long.exp().sum()).p20_ms > 5 * timer(lambda: long[0] + 1).median_ms


def test_yardstick_multiplies_the_in_adjacency(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    src, dst = torch.tensor([0, 1, 1], device=device), torch.tensor([2, 2, 0], device=device)
    struct = GraphStructure.from_coo(src, dst, 3, 3)
    seen = []
    real = torch.sparse.mm

    def spy(matrix: torch.Tensor, feat: torch.Tensor) -> torch.Tensor:
        seen.append((matrix.to_dense().cpu(), feat.shape, feat.dtype))
        return real(matrix, feat)

    monkeypatch.setattr(torch.sparse, "mm", spy)
    assert yardstick_ms(struct, 5, Timer(device, repeats=2)) > 0
    matrix, shape, dtype = seen[0]
    assert matrix.tolist() == [[0, 1, 0], [0, 0, 0], [1, 1, 0]]
    assert (shape, dtype) == ((3, 5), torch.float32)


@pytest.mark.parametrize(
    "case",
    [case for of_op in cases.ALL.values() for case in of_op],
    ids=lambda case: f"{case.op} {case.shape}",
)
def test_cases_have_three_passes(case: cases.Case) -> None:
    call = case.prepare(graphs.load("tiny", CPU).struct, torch.float32)
    outs = call.forward() if case.op == "statistics" else (call.forward(),)
    assert len(outs) == (4 if case.reduce == cases.FOUR else 1)
    assert all(out.numel() == 120 * case.width for out in outs)
    for alone, together in zip(call.backward(), call.both(), strict=True):
        assert alone.abs().sum() > 0
        if case.drop:  # each forward draws a mask of its own
            assert alone.shape == together.shape
        else:
            torch.testing.assert_close(alone, together)


def test_targets_are_found_by_graph() -> None:
    assert targets.target("gatv2", "H=2 D=64", "forward", "products") == 1.1
    assert targets.target("spmm", "sum W=256", "both", "molecules") == 1.4
    assert targets.target("dot_attention", "H=4 D=128", "both", "molecules") == 2.4
    assert targets.target("copy_u_min", "W=512", "both", "proteins") == 1.0
    assert targets.target("spmm", "sum W=256", "backward", "molecules") is None
    assert targets.target("gatv2", "H=2 D=64", "forward", "tiny") is None
    for figures in targets.PEERS.values():
        assert all(len(ratios) == len(targets.GRAPHS) for ratios in figures.values())


def test_four_statistics_bring_the_gradients_of_each() -> None:
    struct = graphs.load("tiny", CPU).struct
    call = cases.Case("statistics", 1, 8, cases.FOUR).prepare(struct, torch.float64)
    (feat,) = call._inputs
    expected = torch.zeros_like(feat)
    for name, grad in zip(cases.FOUR.split(), call._grads, strict=True):
        (alone,) = ops.statistics(struct, feat, (name,))
        expected += torch.autograd.grad(alone, feat, grad)[0]
    torch.testing.assert_close(call.both()[0], expected)
    assert not torch.equal(call._grads[0], call._grads[1])


def test_what_a_case_is_held_against() -> None:
    def of(op: str, reduce: str = "sum", drop: float = 0.0) -> cases.Case:
        return cases.Case(op, 1, 64, reduce, drop)

    assert of("gat", drop=0.5).held_against("both") == (of("gat"), targets.DROPOUT_SHARE)
    assert of("gat").held_against("both") == (of("gatv2"), targets.GAT_SHARE)
    assert of("copy_u_max").held_against("forward") == (of("copy_u_min"), targets.MAX_SHARE)
    four, one = of("statistics", cases.FOUR), of("statistics", "max")
    for which in ("forward", "both"):
        assert four.held_against(which) == (one, targets.STATISTICS_SHARE)
    assert four.held_against("backward") is None
    for case in (one, of("copy_u_min"), of("spmm"), of("spmm", "weighted sum"), of("gatv2")):
        assert case.held_against("both") is None


def test_standard_cases_follow_what_they_are_held_against() -> None:
    seen: list[cases.Case] = []
    for case in (case for of_op in cases.STANDARD.values() for case in of_op):
        base = case.held_against("both")
        assert base is None or base[0] in seen
        seen.append(case)


def test_run_writes_one_row_a_case_and_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: torch.device
) -> None:
    out = tmp_path / "results" / "tiny.csv"
    flags = ["--graphs=tiny,tiny-grid", "--dtypes=bfloat16,float32", "--repeats=2"]
    flags += ["--ops=gatv2,spmm"]
    run.main([*flags, f"--out={out}", f"--device={device.type}", "--commit=abc123"])
    with out.open() as file:
        rows = list(csv.DictReader(file))
    num_cases = len(cases.STANDARD["gatv2"]) + len(cases.STANDARD["spmm"])
    assert len(rows) == 2 * num_cases * 2 * 3  # graphs, cases, dtypes, passes
    assert tuple(rows[0]) == run.COLUMNS
    assert [row["dtype"] for row in rows[:7]] == ["float32"] * 6 + ["bfloat16"]
    for row in rows:
        assert float(row["ratio"]) == pytest.approx(
            float(row["median_ms"]) / float(row["yardstick_ms"]), rel=1e-3
        )
        assert float(row["peak_mb"]) > 0
        assert row["path"] == ("fused" if device.type == "cuda" else "reference")
        assert (row["generator"], row["commit"]) == ("own", "abc123")
    printed = capsys.readouterr().out
    assert "gatv2 H=2 D=64 float32 forward" in printed
    assert printed.splitlines()[-1] == f"wrote {out}"


def test_cases_of_one_op_take_turns_and_are_held_against_the_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[cases.Case] = []
    milliseconds = {"sum": 2.0, "mean": 2.1, "both": 2.2, "weighted sum": 9.0}

    def prepare(case: cases.Case, struct: GraphStructure, dtype: torch.dtype) -> cases.Call:
        call = real(case, struct, dtype)
        monkeypatch.setattr(call, "forward", lambda: order.append(case))
        return call

    def timed(call: Callable[[], object], repeats: int | None = None) -> Timing:
        call()
        assert repeats == 3
        found = milliseconds[order[-1].reduce]
        return Timing(found, found, found)

    real = cases.Case.prepare
    monkeypatch.setattr(cases.Case, "prepare", prepare)
    monkeypatch.setattr(run, "yardstick_ms", lambda *_: 4.0)
    timer = Timer(CPU, repeats=7)
    monkeypatch.setattr(type(timer), "__call__", lambda _, *args: timed(*args))
    graph, wanted = graphs.load("tiny", CPU), cases.STANDARD["spmm"]
    rows = list(run.measure(graph, wanted, ["float32"], ["forward"], timer))
    assert order[:12] == list(wanted) * 3
    assert [row["ratio"] for row in rows] == [0.5, 0.525, 0.55, 2.25]
    assert [row["must"] for row in rows] == ["", 0.525, 0.525, ""]
    assert [row["met"] for row in rows] == ["", "yes", "no", ""]


def test_normalised_sums_are_what_they_say() -> None:
    struct = graphs.load("tiny", CPU).struct
    adjacency = torch.zeros(struct.num_dst, struct.num_src, dtype=torch.float64)
    src, dst = struct.edges()
    adjacency.index_put_((dst, src), torch.ones(src.numel()).double(), accumulate=True)
    inside, outside = (adjacency.sum(dim).clamp(min=1) for dim in (1, 0))
    matrices = {
        "mean": adjacency / inside[:, None],
        "both": adjacency / (inside[:, None] * outside).sqrt(),
    }
    for reduce, matrix in matrices.items():
        case = cases.Case("spmm", 1, 256, reduce)
        call = case.prepare(struct, torch.float64)
        (grad,) = call.both()
        (feat,), (grad_out,) = call._inputs, call._grads
        torch.testing.assert_close(call.forward(), matrix @ feat)
        torch.testing.assert_close(grad, matrix.T @ grad_out)


def test_table_marks_what_missed_its_target() -> None:
    shared = {"op": "spmm", "shape": "sum W=256", "dtype": "float32", "pass": "both"}
    rows = [
        {**shared, "graph": "road", "ratio": 1.4, "met": "yes"},
        {**shared, "graph": "web", "ratio": 1.7, "met": "no"},
    ]
    head, line = run.table(rows).splitlines()
    assert head.split()[-2:] == ["road", "web"]
    assert line.split()[-2:] == ["1.40", "1.70!"]


def test_out_of_memory_loses_one_case_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = cases.Case.prepare

    def prepare(case: cases.Case, struct: GraphStructure, dtype: torch.dtype) -> cases.Call:
        if case.op == "gatv2":
            raise torch.OutOfMemoryError("no room")
        return real(case, struct, dtype)

    monkeypatch.setattr(cases.Case, "prepare", prepare)
    wanted = [cases.Case("gatv2", 2, 8), cases.Case("spmm", 1, 8)]
    graph = graphs.load("tiny", CPU)
    rows = list(run.measure(graph, wanted, ["float32"], ["forward"], Timer(CPU, 1)))
    assert [row["op"] for row in rows] == ["spmm"]
    assert "out of memory: gatv2 H=2 D=8 float32 on tiny" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [["--ops=gatv3"], ["--dtypes=int8"], ["--passes=sideways"]])
def test_run_refuses_unknown_names(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(flags)
    assert "choose from" in capsys.readouterr().err


def test_launch_overhead_reports_each_op(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    monkeypatch.setitem(graphs.OWN, "cora", graphs.OWN["tiny"])
    out = tmp_path / "launch.csv"
    launch_overhead.main([f"--out={out}", "--repeats=2", f"--device={device.type}"])
    with out.open() as file:
        rows = list(csv.DictReader(file))
    launches = 1 if device.type == "cuda" else 0
    assert [row["pass"] for row in rows] == ["launch"] * launches + ["forward", "both"] * len(
        cases.STANDARD
    )
    assert all(float(row["microseconds"]) > 0 for row in rows)


def test_figure_is_drawn_from_a_result_file(tmp_path: Path) -> None:
    source = tmp_path / "h200.csv"
    columns = ["op", "shape", "pass", "graph", "dtype", "ratio", "gpu"]
    with source.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for op, shape, which, _ in plots.PANELS:
            for graph in ("road", "proteins"):
                writer.writerow([op, shape, which, graph, "float32", 1.5, "Imaginary 9000"])
    rows = plots.read([source])
    bars = plots.series(rows, "gatv2", "H=2 D=64", "both", ["proteins", "road"])
    assert bars == {
        "DGL, CUDA": [None, 30.3],
        "paper library": [15.0, 17.0],
        "dgl_flash, float32": [1.5, 1.5],
    }
    target = tmp_path / "figures" / "speed.png"
    plots.main([str(source), f"--out={target}"])
    assert target.stat().st_size > 10_000
