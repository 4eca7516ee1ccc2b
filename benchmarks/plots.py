"""Draw docs/figures/speed_h200.png from the files of benchmarks.run.

python -m benchmarks.plots benchmarks/results/h200.csv
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import targets
from benchmarks.paths import RESULTS, ROOT

FIGURE = ROOT / "docs" / "figures" / "speed_h200.png"
PANELS = (
    ("gatv2", "H=2 D=64", "forward", "GATv2 (2 heads × 64), forward"),
    ("gatv2", "H=2 D=64", "both", "GATv2 (2 heads × 64), forward + backward"),
    (
        "dot_attention",
        "H=4 D=128",
        "forward",
        "dot attention (4 heads × 128), forward, over two sums",
    ),
    (
        *("dot_attention", "H=4 D=128", "both"),
        "dot attention (4 heads × 128), forward + backward, over two sums",
    ),
    ("spmm", "sum W=256", "forward", "neighbour sum (256 wide), forward"),
    ("spmm", "sum W=256", "both", "neighbour sum (256 wide), forward + backward"),
)
OURS = {"float32": "dgl_flash, float32", "bfloat16": "dgl_flash, bfloat16"}
COLORS = {
    "DGL, CUDA": "#c9ccd3",
    "paper library": "#8f96a3",
    "dgl_flash, float32": "#1f6f54",
    "dgl_flash, bfloat16": "#6cc2a1",
}
INK = "#2b2f36"


def read(paths: Sequence[Path]) -> list[dict[str, str]]:
    """Read the rows of all files, later files last."""
    rows: list[dict[str, str]] = []
    for path in paths:
        with path.open(newline="") as file:
            rows += csv.DictReader(file)
    return rows


def series(
    rows: Sequence[dict[str, str]], op: str, shape: str, which: str, graphs: Sequence[str]
) -> dict[str, list[float | None]]:
    """Ratio to the yardstick of each implementation on each graph, None where there is none."""
    found: dict[str, list[float | None]] = {}
    for peer, figures in targets.PEERS[op, shape, which].items():
        known = dict(zip(targets.GRAPHS, figures, strict=True))
        found[peer] = [known.get(graph) for graph in graphs]
    for dtype, label in OURS.items():
        ratios = {
            row["graph"]: float(row["ratio"])
            for row in rows
            if (row["op"], row["shape"], row["pass"], row["dtype"]) == (op, shape, which, dtype)
        }
        if ratios:
            found[label] = [ratios.get(graph) for graph in graphs]
    return found


def draw(rows: Sequence[dict[str, str]], target: Path) -> None:
    """Draw the panels and write the picture."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    measured = {row["graph"] for row in rows}
    graphs = [graph for graph in targets.GRAPHS if graph in measured]
    with pyplot.rc_context({"font.size": 9, "text.color": INK, "axes.labelcolor": INK}):
        figure, grid = pyplot.subplots(3, 2, figsize=(13.5, 9.8), layout="constrained")
        for axes, (op, shape, which, title) in zip(grid.flat, PANELS, strict=True):
            _panel(axes, series(rows, op, shape, which, graphs), graphs, title)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        card = next((row["gpu"] for row in rows if row["gpu"]), "")
        figure.suptitle(
            f"Time as a multiple of one cuSPARSE sum over the same rows ({card}, lower is better)",
            fontsize=12,
            fontweight="bold",
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=130, facecolor="white")
        pyplot.close(figure)


def _panel(
    axes: Any, bars: dict[str, list[float | None]], graphs: Sequence[str], title: str
) -> None:
    width = 0.84 / len(bars)
    for number, (label, ratios) in enumerate(bars.items()):
        offset = (number - (len(bars) - 1) / 2) * width
        places = [place + offset for place in range(len(graphs))]
        heights = [ratio or 0 for ratio in ratios]
        axes.bar(places, heights, width * 0.94, label=label, color=COLORS[label], zorder=2)
        ours = label in OURS.values()
        for place, ratio in zip(places, ratios, strict=True):
            if ratio is None and not ours:
                bottom = (place, 0.02)
                across = axes.get_xaxis_transform()
                style = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": 6.5}
                axes.annotate("out of memory", bottom, xycoords=across, **style)
            elif ratio is not None:
                axes.annotate(
                    _number(ratio),
                    (place, ratio),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="center",
                    fontsize=6.5,
                    fontweight="bold" if ours else "normal",
                )
    largest = max(ratio for ratios in bars.values() for ratio in ratios if ratio is not None)
    if largest > 8:
        axes.set_yscale("log")
        axes.set_ylim(0.3, 2.2 * largest)
        axes.set_yticks([1, 10, 100], ["1", "10", "100"])
        axes.minorticks_off()
    else:
        axes.set_ylim(0, 1.15 * largest)
    axes.axhline(1, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xticks(range(len(graphs)), graphs)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="y", color="#e7e9ed", zorder=0)
    axes.set_title(title, loc="left", fontweight="bold")


def _number(ratio: float) -> str:
    digits = 2 if ratio < 1 else 1 if ratio < 10 else 0
    return f"{ratio:.{digits}f}"


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Draw the figure of the README.")
    parser.add_argument("results", nargs="*", type=Path, help="files of benchmarks.run")
    parser.add_argument("--out", type=Path, default=FIGURE)
    options = parser.parse_args(argv)
    paths = options.results or sorted(RESULTS.glob("h200*.csv"))
    if not paths:
        parser.error(f"no h200*.csv in {RESULTS}; name a result file")
    draw(read(paths), options.out)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
