"""``dgl-flash demo``: the comparison of :mod:`dgl_flash.demo` in a terminal."""

from __future__ import annotations

import argparse
from typing import Any

from dgl_flash.demo.optional import DemoError, require


def run(arguments: argparse.Namespace) -> int:
    """Train, show progress, print the table.

    Parameters
    ----------
    arguments : argparse.Namespace
        Parsed arguments of the ``demo`` command.

    Returns
    -------
    int
        Exit status 0; a failure raises ``DemoError``.
    """
    # rich is asked for first: a missing package should not cost a training run.
    for module in ("rich.console", "rich.progress", "rich.table"):
        require(module, extra="demo", purpose="the demo")
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    from dgl_flash.demo import run_demo

    console = Console()
    columns = [SpinnerColumn(), *Progress.get_default_columns(), TimeElapsedColumn()]
    with Progress(*columns, console=console) as bar:
        tasks: dict[tuple[str, str], Any] = {}

        def advance(model: str, library: str, epoch: int, loss: float) -> None:
            key = (model, library)
            if key not in tasks:
                tasks[key] = bar.add_task("", total=arguments.epochs)
            text = f"{model:5} {library:12} loss {loss:.4f}"
            bar.update(tasks[key], completed=epoch + 1, description=text)

        result = run_demo(
            arguments.dataset,
            npz=arguments.npz,
            epochs=arguments.epochs,
            hidden=arguments.hidden,
            heads=arguments.heads,
            lr=arguments.lr,
            seed=arguments.seed,
            k=arguments.k,
            device=arguments.device,
            progress=advance,
        )
    size = "{name}: {nodes:,} nodes, {edges:,} edges, {classes} classes".format(**result.data)
    console.print(size, highlight=False)
    console.print(_table(result))
    for note in result.notes:
        console.print(f"- {note}", markup=False, highlight=False)
    if arguments.json:
        try:
            result.write_json(arguments.json)
        except OSError as error:
            raise DemoError(f"cannot write {arguments.json}: {error.strerror}") from error
    return 0


def _table(result: Any) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    table.add_column("model")
    table.add_column("quantity")
    for library in result.libraries:
        table.add_column(library, overflow="fold")
    shown = None
    for model, quantity, *values in result.rows():
        if shown not in (None, model):
            table.add_section()
        table.add_row("" if model == shown else model, quantity, *map(Text, values))
        shown = model
    return table
