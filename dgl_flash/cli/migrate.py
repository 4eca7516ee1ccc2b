"""``dgl-flash migrate``: rewrite programs from ``dgl.nn`` to ``dgl_flash.nn``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dgl_flash.demo.optional import MissingDependency, require
from dgl_flash.migration import files, report
from dgl_flash.migration.result import MigrationError, Rewrite

_DESCRIPTION = """\
Rewrites Python files and Jupyter notebooks that use dgl.nn so that they use dgl_flash.nn: every
kind of import, and uses such as dgl.nn.GATConv(...) after `import dgl`. Comments and formatting
stay, and `import dgl_flash` is put above the first import of dgl. Without --write nothing is
changed and the diff is all you get. Files that do not use dgl.nn are left alone, and so is what
cannot be decided by reading: it is listed with its file and line.
"""
_EPILOG = """\
examples:
  dgl-flash migrate train.py                  show what would change
  dgl-flash migrate src notebooks --write     change every file below two directories
  dgl-flash migrate --check .                 in CI: fail where something is left to migrate

exit status:
  0  done, also if lines are listed that you have to decide
  1  a file is missing or cannot be read, parsed or written, or libcst is not installed;
     with --check also if something would change
  2  wrong arguments

Tools that sort imports may move `import dgl_flash` below `import dgl`: write `# isort: split`
on a line between the two.

Only imports of dgl.nn change. Where graphs go to CUDA and DGL cannot, call
dgl_flash.enable_cuda() once after the imports; `dgl-flash run` does it for you.

Below a directory, hidden directories, virtual environments, node_modules, site-packages,
__pycache__ and symbolic links are skipped. Needs libcst: pip install "dgl_flash[migrate]"
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command.

    Parameters
    ----------
    commands : argparse._SubParsersAction
        What ``add_subparsers`` gave.
    """
    parser = commands.add_parser(
        "migrate",
        help="rewrite Python files and notebooks from dgl.nn to dgl_flash.nn",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, or a directory to search")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--write", action="store_true", help="change the files")
    mode.add_argument(
        "--check", action="store_true", help="exit with 1 if something would change; for CI"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Migrate files.

    Parameters
    ----------
    arguments : argparse.Namespace
        ``paths``, ``write`` and ``check``.

    Returns
    -------
    int
        Exit status, as the help explains it.
    """
    try:
        require("libcst", extra="migrate", purpose="dgl-flash migrate")
    except MissingDependency as error:
        print(f"dgl-flash: {error}", file=sys.stderr)
        return 1
    errors: list[str] = []
    paths = _paths(arguments.paths, errors)
    results: dict[Path, Rewrite] = {}
    for path in report.with_progress(paths):
        try:
            results[path] = _migrated(path, write=arguments.write)
        except MigrationError as error:
            errors.append(f"{path}: {error}")
    _show(results, written=arguments.write)
    for text in errors:
        print(f"dgl-flash: {text}", file=sys.stderr)
    changed = any(result.parts for result in results.values())
    return 1 if errors or (arguments.check and changed) else 0


def _paths(given: list[str], errors: list[str]) -> list[Path]:
    """Files to look at, each once, in the order in which they were asked for."""
    found: dict[Path, Path] = {}
    for name in given:
        try:
            for path in files.find(Path(name)):
                found.setdefault(path.resolve(), path)
        except MigrationError as error:
            errors.append(f"{name}: {error}")
    return list(found.values())


def _migrated(path: Path, write: bool) -> Rewrite:
    # libcst is optional, and this command is imported with the others.
    from dgl_flash.migration.notebook import migrate_notebook
    from dgl_flash.migration.source import migrate_source

    document = files.read(path)
    migrate = migrate_notebook if path.suffix == ".ipynb" else migrate_source
    result = migrate(document.text)
    if write and result.parts:
        files.write(path, files.Document(result.text, document.encoding))
    return result


def _show(results: dict[Path, Rewrite], written: bool) -> None:
    for path, result in results.items():
        for part in result.parts:
            report.show_diff(report.diff(path, part))
    findings = [(path, finding) for path, r in results.items() for finding in r.findings]
    if findings:
        print("\nleft for you to decide:")
        for path, finding in findings:
            print(f"{finding.place(path)}: {finding.text}")
        print()
    changed = sum(bool(result.parts) for result in results.values())
    print(report.summary(len(results), changed, len(findings), written))
