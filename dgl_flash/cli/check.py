"""``dgl-flash check``: does a model do with ``dgl_flash.nn`` what it does with ``dgl.nn``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

import torch

from dgl_flash.checking import CheckError, check
from dgl_flash.demo.optional import import_dgl

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
GENERATED = "graph_and_feat"  # what a module may call its graph and features
NODES, EDGES = 1_000, 10_000

_EXAMPLES = """\
examples:
  dgl-flash check mymodel:make
      mymodel.py lies in the current directory and has

          def make(nn):  # called with dgl.nn and with dgl_flash.nn
              return nn.GATv2Conv(32, 8, num_heads=4)

      and the features of a random graph are 32 wide.
  dgl-flash check mymodel:make --in-feats 100 --device cpu --dtype float64
  dgl-flash check mymodel:make --graph mydata:load
      load() returns (graph, feat), or (graph, feat, ...) with more arguments of the model;
      a function or pair called graph_and_feat beside `make` is taken without --graph.
  dgl-flash check mymodel:trained
      a model that is built already, or a function without arguments that builds one.

exit status: 0 the same, 1 different or not to be checked, 2 wrong arguments
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of ``dgl-flash``.

    Parameters
    ----------
    commands : argparse sub-parsers
        What ``add_subparsers`` returned.
    """
    parser = commands.add_parser(
        "check",
        help="compare a model of yours with dgl.nn and with dgl_flash.nn",
        description="Runs a model with the layers of dgl.nn and of dgl_flash.nn on the same\n"
        "weights, graph and features; compares outputs, gradients and checkpoints, and\n"
        "measures time and memory.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "factory",
        metavar="MODULE:NAME",
        type=reference,
        help="a function that takes a namespace of layers and returns a model, or a model",
    )
    parser.add_argument(
        "--graph",
        metavar="MODULE:NAME",
        type=reference,
        help=f"(graph, feat) or a function that returns it (default: {GENERATED} beside the "
        f"factory; else a random graph of {NODES:,} nodes and {EDGES:,} edges, with self-loops)",
    )
    parser.add_argument(
        "--in-feats",
        metavar="N",
        type=_at_least_one,
        default=32,
        help="width of the features of the random graph (32)",
    )
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: CUDA if there is a card)")
    parser.add_argument(
        "--dtype", choices=DTYPES, help="of weights and features (default: as they are)"
    )
    parser.add_argument(
        "--repeats",
        metavar="N",
        type=_not_negative,
        default=10,
        help="measured calls, 0 to measure nothing (10)",
    )
    parser.add_argument(
        "--train", action="store_true", help="training mode; compares with dropout off"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and features (0)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check and print.

    Parameters
    ----------
    arguments : argparse.Namespace
        Parsed arguments of the ``check`` command.

    Returns
    -------
    int
        0 if nothing differs, else 1.
    """
    folder = os.getcwd()  # searched as by `python -m`
    if folder not in sys.path:
        sys.path.insert(0, folder)
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        factory = _load(*arguments.factory)
        result = check(
            factory,
            *_graph_and_feat(arguments),
            device=device,
            dtype=DTYPES.get(arguments.dtype),
            train=arguments.train,
            repeats=arguments.repeats,
            seed=arguments.seed,
        )
    except CheckError as error:
        print(f"dgl-flash check: {error}", file=sys.stderr)
        return 1
    print(result)
    return 0 if result.ok else 1


def reference(text: str) -> tuple[str, str]:
    """Split ``module:name``; argparse shows this function's name in its errors."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise argparse.ArgumentTypeError(f"must look like module:name, got {text!r}")
    return module, name


def _at_least_one(text: str) -> int:
    return _number(text, least=1)


def _not_negative(text: str) -> int:
    return _number(text, least=0)


def _number(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {text}")
    return int(text)


def _graph_and_feat(arguments: argparse.Namespace) -> tuple[Any, ...]:
    """Graph, features and what else the model takes."""
    module, name = arguments.graph or (arguments.factory[0], GENERATED)
    if arguments.graph is None and not hasattr(sys.modules[module], name):
        return _random(arguments.in_feats, arguments.seed)
    found = _load(module, name)
    if callable(found):
        torch.manual_seed(arguments.seed)
        found = found()
    if not isinstance(found, tuple | list) or len(found) < 2:
        raise CheckError(f"{module}:{name} gives no (graph, feat); return a tuple of the two")
    return tuple(found)


def _random(width: int, seed: int) -> tuple[Any, torch.Tensor]:
    dgl, reason = import_dgl()
    if dgl is None:
        raise CheckError(f'{reason}; a check needs it: pip install "dgl_flash[dgl]"')
    generator = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(NODES, (2, EDGES), generator=generator)
    graph = dgl.add_self_loop(dgl.graph((src, dst), num_nodes=NODES))
    return graph, torch.randn(NODES, width, generator=generator)


def _load(module: str, name: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise CheckError(
            f"cannot import {module} ({error}); run from the folder it lies in, or put that on "
            f"PYTHONPATH"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise CheckError(f"{module} has no {name}; give a name that it defines")
        found = getattr(found, part)
    return found
