"""``dgl-flash run``: run a script that was written for ``dgl.nn``, unchanged."""

from __future__ import annotations

import argparse
import sys

from dgl_flash.legacy.program import run_module, run_script


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command.

    Parameters
    ----------
    commands : argparse sub-parsers
        Those of ``dgl-flash``.
    """
    parser = commands.add_parser(
        "run",
        usage="dgl-flash run [-h] [--quiet] (SCRIPT | -m MODULE) [ARGS ...]",
        help="run a script that uses dgl.nn, unchanged, on the layers of dgl_flash",
        description="Runs a script or a module as python would. Its imports of dgl.nn give the "
        "layers of dgl_flash, and a plain DGL becomes importable beside a current torch. At the "
        "end stderr tells which layers were replaced and which kernels ran.",
    )
    parser.add_argument("--quiet", action="store_true", help="no report at the end")
    # Both take the rest of the line: what follows belongs to the program.
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, help="a module and its arguments"
    )
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="SCRIPT", help="a script and its arguments"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the program.

    Parameters
    ----------
    arguments : argparse.Namespace
        Parsed arguments of the ``run`` command.

    Returns
    -------
    int
        Exit status of the program; 2 if none was named.
    """
    if arguments.module:
        return run_module(arguments.module[0], arguments.module[1:], quiet=arguments.quiet)
    if arguments.script:
        return run_script(arguments.script[0], arguments.script[1:], quiet=arguments.quiet)
    print(
        "dgl-flash run: name a script, or a module after -m: dgl-flash run train.py --epochs 10",
        file=sys.stderr,
    )
    return 2
