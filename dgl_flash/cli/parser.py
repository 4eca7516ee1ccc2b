"""Arguments of the ``dgl-flash`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dgl_flash import __version__
from dgl_flash.demo.data import DATASETS
from dgl_flash.demo.optional import DemoError

from . import check, demo, doctor, migrate, run


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; by default those of the process.

    Returns
    -------
    int
        Exit status.
    """
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except DemoError as error:
        print(f"dgl-flash: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dgl-flash", description="dgl.nn on IO-aware CUDA kernels"
    )
    parser.add_argument("--version", action="version", version=f"dgl_flash {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands)
    run.add_parser(commands)
    migrate.add_parser(commands)
    check.add_parser(commands)
    checkup = commands.add_parser(
        "doctor", help="show versions and the GPU, and what to install for more"
    )
    checkup.set_defaults(run=lambda arguments: doctor.run())
    return parser


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "demo",
        help="train GATv2 and GCN with dgl.nn and with dgl_flash.nn, and compare",
        description="Trains a two-layer GATv2 and a two-layer GCN, each once with dgl.nn and once "
        "with dgl_flash.nn: same graph, same initial weights, one import changed.",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--dataset",
        choices=DATASETS,
        default="digits",
        help="digits (default) come with scikit-learn, the citation graphs through dgl.data",
    )
    source.add_argument("--npz", metavar="FILE", help="a stored graph with labels")
    for flag, kind, default, text in (
        ("--epochs", positive_int, 100, "epochs of each run"),
        ("--hidden", positive_int, 8, "width of a head"),
        ("--heads", positive_int, 8, "attention heads"),
        ("--lr", float, 0.005, "learning rate"),
        ("--seed", int, 0, "seed of split and weights"),
        ("--k", positive_int, 8, "neighbours of each digit"),
    ):
        parser.add_argument(flag, type=kind, default=default, help=f"{text} ({default})")
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: CUDA if there is a card)")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    parser.set_defaults(run=demo.run)


def positive_int(text: str) -> int:
    """Read a number of at least 1; argparse shows this function's name in its errors."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
