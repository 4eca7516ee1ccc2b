"""Where ``import dgl_flash`` has to be added: above the first import of DGL, and where it is used.

An import stands *above* another one if it has run whenever the other one runs: it comes earlier in
the same block or in a block around it. For a function, everything in the blocks around it has run.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst import matchers as m

from .bindings import Binding, ImportNode, bindings_of
from .imports import packages

Parents = Mapping[cst.CSTNode, cst.CSTNode]
Becomes = dict[cst.BaseSmallStatement, list[ImportNode]]
Line = cst.SimpleStatementLine | cst.SimpleStatementSuite

_AN_IMPORT = m.Import() | m.ImportFrom()


@dataclass
class _State:
    """What has run: any import of dgl_flash, and one that binds its name here."""

    imported: bool = False
    bound: bool = False

    def read(self, statement: ImportNode) -> None:
        if "dgl_flash" not in packages(statement):
            return
        self.imported = True
        if isinstance(statement, cst.Import):
            self.bound = self.bound or any(
                alias.asname is None and package == "dgl_flash"
                for alias, package in zip(statement.names, packages(statement), strict=True)
            )


def lines_to_precede(
    module: cst.Module,
    parents: Parents,
    becomes: Becomes,
    binders: Collection[cst.CSTNode],
) -> set[Line]:
    """Find the lines above which ``import dgl_flash`` has to stand.

    Parameters
    ----------
    module : Module
        The module before it is rewritten.
    parents : mapping
        Node -> the node that holds it.
    becomes : mapping
        Import -> what takes its place.
    binders : collection of CSTNode
        Imports that bind ``dgl`` for a name that becomes ``dgl_flash.nn``.

    Returns
    -------
    set of Line
        Lines that hold an import of DGL.
    """
    lines = [
        line
        for line in m.findall(module, m.SimpleStatementLine() | m.SimpleStatementSuite())
        if isinstance(line, (cst.SimpleStatementLine, cst.SimpleStatementSuite))
    ]
    # Functions last: they run when the blocks around them have run.
    lines.sort(key=lambda line: sum(_is_function(a) for a in _ancestors(line, parents)))
    chosen: set[Line] = set()
    for line in lines:
        imports = [s for s in line.body if isinstance(s, (cst.Import, cst.ImportFrom))]
        if not imports:
            continue
        state = _State()
        for other in _above(line, parents):
            if other in chosen:
                state = _State(True, True)
            for statement in _imports_of(other, becomes):
                state.read(statement)
        for original in imports:
            for statement in becomes.get(original, [original]):
                if _needs(statement, state, original in binders):
                    chosen.add(line)
                state.read(statement)
    return chosen


def lacking_dgl(
    wanted: Sequence[Binding], parents: Parents, going: Collection[cst.ImportAlias]
) -> set[cst.CSTNode]:
    """Find the imports of ``dgl.nn`` that have to be followed by ``import dgl``.

    Parameters
    ----------
    wanted : sequence of Binding
        In the order of the module, those whose name ``dgl`` is used for something else too.
    parents : mapping
        Node -> the node that holds it.
    going : collection of ImportAlias
        Imports that no longer bind ``dgl``.

    Returns
    -------
    set of CSTNode
        Their aliases, without those that have another import of ``dgl`` above them, or below them
        with nothing but imports between.
    """
    lacking: set[cst.CSTNode] = set()
    for binding in wanted:
        line = parents[binding.statement]
        near = [*_above(line, parents), line, *_imports_below(line, parents)]
        others = (b for other in near for s in _imports_of(other, {}) for b in bindings_of(s))
        if not any(
            other.alias in lacking or (other.unaliased and other.alias not in going)
            for other in others
        ):
            lacking.add(binding.alias)
    return lacking


def _imports_below(line: cst.CSTNode, parents: Parents) -> Iterator[cst.CSTNode]:
    block = parents[line]
    if isinstance(block, (cst.Module, cst.IndentedBlock)):
        for other in itertools.dropwhile(lambda other: other is not line, block.body):
            if not m.matches(other, m.SimpleStatementLine(body=[_AN_IMPORT, m.ZeroOrMore()])):
                return
            yield other


def _needs(statement: ImportNode, state: _State, binds: bool) -> bool:
    names = packages(statement)
    if "dgl" not in names:
        return False
    # `import dgl_flash, dgl` brings it by itself.
    if "dgl_flash" in names[: names.index("dgl")]:
        state.read(statement)
    return not state.imported or (binds and not state.bound)


def _imports_of(line: cst.CSTNode, becomes: Becomes) -> Iterator[ImportNode]:
    if isinstance(line, cst.SimpleStatementLine):
        for statement in line.body:
            if isinstance(statement, (cst.Import, cst.ImportFrom)):
                yield from becomes.get(statement, [statement])


def _above(line: cst.CSTNode, parents: Parents) -> Iterator[cst.CSTNode]:
    """Statements that have run when `line` runs, and whose names can be seen from there."""
    child, in_function = line, False
    for block in _ancestors(line, parents):
        if isinstance(block, (cst.Module, cst.IndentedBlock)):
            hidden = in_function and isinstance(parents.get(block), cst.ClassDef)
            for other in () if hidden else block.body:
                if other is child and not in_function:
                    break
                if other is not child:
                    yield other
        in_function = in_function or _is_function(block)
        child = block


def _ancestors(node: cst.CSTNode, parents: Parents) -> Iterator[cst.CSTNode]:
    while node in parents:
        node = parents[node]
        yield node


def _is_function(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.FunctionDef)
