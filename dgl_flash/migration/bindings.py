"""Which names of a module stand for ``dgl`` and what is in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst
from libcst import matchers as m
from libcst.helpers import get_full_name_for_node
from libcst.metadata import Assignment, BaseAssignment, ImportAssignment

# Either kind of statement; the aliases of a star import are none.
ImportNode = cst.Import | cst.ImportFrom


@dataclass(frozen=True)
class Binding:
    """A name that an import of ``dgl`` binds.

    Attributes
    ----------
    statement : Import or ImportFrom
        The statement.
    alias : ImportAlias
        Its part that binds the name.
    path : str
        What the name stands for: ``"dgl"``, ``"dgl.nn"``, ``"dgl.nn.GATConv"``.
    """

    statement: ImportNode = field(hash=False, compare=False)
    alias: cst.ImportAlias
    path: str

    @property
    def unaliased(self) -> bool:
        """True for ``import dgl`` and ``import dgl.anything``, which bind ``dgl``."""
        return isinstance(self.statement, cst.Import) and self.alias.asname is None


@dataclass(frozen=True)
class Referents:
    """What a name may stand for at one place.

    Attributes
    ----------
    bindings : tuple of Binding
        Imports of ``dgl``.
    others : bool
        True if it may also be something else. ``dgl = None``, as one writes where DGL is optional,
        is not something else.
    """

    bindings: tuple[Binding, ...]
    others: bool

    @property
    def path(self) -> str | None:
        """The one path that the name stands for, None where it is not certain."""
        paths = {binding.path for binding in self.bindings}
        return paths.pop() if len(paths) == 1 and not self.others else None


def imports_of(module: cst.Module) -> list[ImportNode]:
    """List the imports of a module.

    Parameters
    ----------
    module : Module
        The module.

    Returns
    -------
    list of Import or ImportFrom
        In order, wherever they stand.
    """
    found = m.findall(module, m.Import() | m.ImportFrom())
    return [node for node in found if isinstance(node, (cst.Import, cst.ImportFrom))]


def bindings_of(statement: ImportNode) -> Iterator[Binding]:
    """List what an import binds of ``dgl``.

    Parameters
    ----------
    statement : Import or ImportFrom
        Any import.

    Yields
    ------
    Binding
        In the order of the statement; none for a star import.
    """
    if isinstance(statement.names, cst.ImportStar):
        return
    module = module_of(statement) if isinstance(statement, cst.ImportFrom) else None
    for alias in statement.names:
        name = get_full_name_for_node(alias.name) or ""
        if isinstance(statement, cst.ImportFrom):
            path = f"{module}.{name}"
        else:
            path = name if alias.asname else name.split(".")[0]
        if path.split(".")[0] == "dgl":
            yield Binding(statement, alias, path)


def imported_path(binding: Binding) -> str:
    """Name what an alias imports, which for ``import dgl.nn`` is more than it binds.

    Parameters
    ----------
    binding : Binding
        A binding.

    Returns
    -------
    str
        Dotted path.
    """
    if isinstance(binding.statement, cst.Import):
        return get_full_name_for_node(binding.alias.name) or ""
    return binding.path


def module_of(statement: cst.ImportFrom) -> str:
    """Name the module of ``from module import name``.

    Parameters
    ----------
    statement : ImportFrom
        The statement.

    Returns
    -------
    str
        Dotted name, empty for a relative import.
    """
    if statement.relative or statement.module is None:
        return ""
    return get_full_name_for_node(statement.module) or ""


def referents(
    assignments: Collection[BaseAssignment],
    known: dict[cst.CSTNode, Binding],
    nones: Collection[cst.CSTNode],
) -> Referents:
    """Sort the assignments of a name.

    Parameters
    ----------
    assignments : collection of BaseAssignment
        Those that libcst found for one place.
    known : dict
        Node of the bound name -> its binding.
    nones : collection of CSTNode
        Targets that are set to None.

    Returns
    -------
    Referents
        Imports of ``dgl`` among them, and whether there is anything else.
    """
    found, others = [], False
    for assignment in assignments:
        node: cst.CSTNode | None = None
        if isinstance(assignment, ImportAssignment):
            node = assignment.as_name
        elif isinstance(assignment, Assignment):
            node = assignment.node
        if node in known:
            found.append(known[node])
        elif node not in nones:
            others = True
    return Referents(tuple(found), others)


def chain(node: cst.BaseExpression) -> tuple[cst.Name, Sequence[str]] | None:
    """Take ``a.b.c`` apart.

    Parameters
    ----------
    node : BaseExpression
        Any expression.

    Returns
    -------
    tuple of (Name, sequence of str), or None
        The name at the front and the attributes; None for other expressions.
    """
    attributes: list[str] = []
    while isinstance(node, cst.Attribute):
        attributes.insert(0, node.attr.value)
        node = node.value
    return (node, attributes) if isinstance(node, cst.Name) else None
