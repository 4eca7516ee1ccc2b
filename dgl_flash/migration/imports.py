"""Rewriting import statements."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import libcst as cst

from .bindings import ImportNode, bindings_of, imported_path, module_of
from .targets import OLD, home, new_path


def rewritten(
    statement: ImportNode, kept: Collection[cst.CSTNode], needs_dgl: Collection[cst.CSTNode]
) -> list[ImportNode]:
    """Rewrite an import.

    Parameters
    ----------
    statement : Import or ImportFrom
        Any import.
    kept : collection of CSTNode
        Aliases and star imports that stay.
    needs_dgl : collection of CSTNode
        Aliases of ``import dgl.nn`` beside which ``import dgl`` is needed.

    Returns
    -------
    list of Import or ImportFrom
        What takes its place; the statement itself where nothing changes.
    """
    if isinstance(statement, cst.Import):
        return _rewritten_import(statement, kept, needs_dgl)
    if isinstance(statement.names, cst.ImportStar):
        return [_star(statement, kept)]
    return _rewritten_from(statement, statement.names, kept)


def packages(statement: ImportNode) -> list[str]:
    """List the top-level packages that a statement imports.

    Parameters
    ----------
    statement : Import or ImportFrom
        Any import.

    Returns
    -------
    list of str
        In order.
    """
    if isinstance(statement, cst.ImportFrom):
        return [module_of(statement).split(".")[0]]
    return [_front(alias.name) for alias in statement.names]


def dotted(path: str) -> cst.Name | cst.Attribute:
    """Build the node of a dotted path.

    Parameters
    ----------
    path : str
        Dotted path.

    Returns
    -------
    Name or Attribute
        Its node.
    """
    front, _, last = path.rpartition(".")
    if not front:
        return cst.Name(last)
    return cst.Attribute(value=dotted(front), attr=cst.Name(last))


def _front(node: cst.BaseExpression) -> str:
    while isinstance(node, cst.Attribute):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def _rewritten_import(
    statement: cst.Import, kept: Collection[cst.CSTNode], needs_dgl: Collection[cst.CSTNode]
) -> list[ImportNode]:
    new = {
        binding.alias: binding.alias.with_changes(name=dotted(new_path(imported_path(binding))))
        for binding in bindings_of(statement)
        if binding.alias not in kept and f"{imported_path(binding)}.".startswith(f"{OLD}.")
    }
    if not new:
        return [statement]
    aliases = [new.get(alias, alias) for alias in statement.names]
    result: list[ImportNode] = [statement.with_changes(names=aliases)]
    if any(alias in needs_dgl and alias.asname is None for alias in new):
        result.append(cst.Import(names=[cst.ImportAlias(name=cst.Name("dgl"))]))
    return result


def _star(statement: cst.ImportFrom, kept: Collection[cst.CSTNode]) -> cst.ImportFrom:
    module = module_of(statement)
    if statement in kept or not f"{module}.".startswith(f"{OLD}."):
        return statement
    return statement.with_changes(module=dotted(new_path(module)))


def _rewritten_from(
    statement: cst.ImportFrom, aliases: Sequence[cst.ImportAlias], kept: Collection[cst.CSTNode]
) -> list[ImportNode]:
    """Sort the names by the module they come from now: a statement for each, ours first."""
    module = module_of(statement)
    targets = dict.fromkeys(aliases, module)
    for binding in bindings_of(statement):
        new = home(*binding.path.rpartition(".")[::2]) if _is_of_nn(binding.path) else None
        if new is not None and binding.alias not in kept:
            targets[binding.alias] = new
    modules = sorted(dict.fromkeys(targets.values()), key=lambda name: name == module)
    if modules == [module]:
        return [statement]
    return [
        statement.with_changes(
            module=dotted(name),
            names=_picked([alias for alias in aliases if targets[alias] == name], aliases),
        )
        for name in modules
    ]


def _is_of_nn(path: str) -> bool:
    return f"{path}.".startswith(f"{OLD}.")


def _picked(
    chosen: Sequence[cst.ImportAlias], aliases: Sequence[cst.ImportAlias]
) -> list[cst.ImportAlias]:
    """Give the last name the end of the original list; a comment after its comma stays."""
    last, old_last = chosen[-1], aliases[-1]
    if last is old_last:
        return list(chosen)
    comma = old_last.comma
    if isinstance(last.comma, cst.Comma) and _has_comment(last.comma):
        space = cst.ensure_type(last.comma.whitespace_after, cst.ParenthesizedWhitespace)
        space = space.with_changes(indent=False, last_line=cst.SimpleWhitespace(""))
        comma = last.comma.with_changes(whitespace_after=space)
    return [*chosen[:-1], last.with_changes(comma=comma)]


def _has_comment(comma: cst.Comma) -> bool:
    space = comma.whitespace_after
    return isinstance(space, cst.ParenthesizedWhitespace) and (
        space.first_line.comment is not None or any(line.comment for line in space.empty_lines)
    )
