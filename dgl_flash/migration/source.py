"""Rewriting one module of Python."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import cast

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider, ScopeProvider

from .bindings import imports_of
from .imports import rewritten
from .order import Becomes, Line, Parents, lacking_dgl, lines_to_precede
from .result import Finding, MigrationError, Part, Rewrite
from .survey import Survey

# Both words, in either order.
_MAY_USE_NN = re.compile(r"(?s)\A(?=.*\bdgl\b)(?=.*\bnn\b)")
_TOO_DEEP = "an expression is nested too deeply; change this file by hand"
_ABOVE = "# before `import dgl`"


def migrate_source(text: str) -> Rewrite:
    """Rewrite a module so that it uses ``dgl_flash.nn`` instead of ``dgl.nn``.

    Parameters
    ----------
    text : str
        The module, with its line endings.

    Returns
    -------
    Rewrite
        The module with what was left for people to decide.

    Raises
    ------
    MigrationError
        If it cannot be parsed.
    """
    code, findings = rewrite_code(text)
    return Rewrite(code, (Part(text, code),) if code != text else (), tuple(sorted(findings)))


def rewrite_code(text: str, keep_dgl: bool = False) -> tuple[str, list[Finding]]:
    """Do the work of :func:`migrate_source`.

    Parameters
    ----------
    text : str
        The module.
    keep_dgl : bool
        True if code that is not part of the text may use the name ``dgl``.

    Returns
    -------
    code : str
        The module rewritten.
    findings : list of Finding
        What was left.

    Raises
    ------
    MigrationError
        If it cannot be parsed.
    """
    if not _MAY_USE_NN.search(text):  # most files of a project, and parsing is what takes time
        return text, []
    try:
        return _rewritten(parse(text), keep_dgl)
    except RecursionError as error:
        raise MigrationError(_TOO_DEEP) from error


def parse(text: str) -> cst.Module:
    """Parse a module.

    Parameters
    ----------
    text : str
        The module.

    Returns
    -------
    Module
        Its tree, which gives the same text again.

    Raises
    ------
    MigrationError
        If the text is not Python, or the tree would change it.
    """
    try:
        module = cst.parse_module(text)
        code = module.code
    except RecursionError as error:
        raise MigrationError(_TOO_DEEP) from error
    except cst.ParserSyntaxError as error:
        raise MigrationError(
            f"line {error.raw_line}: not the syntax of Python 3; correct it or leave the file out"
        ) from error
    if code != text:
        raise MigrationError("the parser cannot keep its formatting; change this file by hand")
    return module


def _rewritten(tree: cst.Module, keep_dgl: bool) -> tuple[str, list[Finding]]:
    wrapper = MetadataWrapper(tree, unsafe_skip_copy=True)
    module = wrapper.module
    metadata = wrapper.resolve_many([ScopeProvider, PositionProvider, ParentNodeProvider])
    survey = Survey(module, metadata, keep_dgl=keep_dgl)
    parents = cast(Parents, metadata[ParentNodeProvider])
    lacking = lacking_dgl(survey.wanted, parents, survey.going)
    becomes: Becomes = {
        node: new
        for node in imports_of(module)
        if (new := rewritten(node, survey.kept, lacking)) != [node]
    }
    if not becomes and not survey.roots:
        return module.code, survey.findings
    binders = {b.statement for b in survey.known.values() if b.alias in survey.binders}
    preceded = lines_to_precede(module, parents, becomes, binders)
    return module.visit(_Rewriter(survey.roots, becomes, preceded)).code, survey.findings


class _Rewriter(cst.CSTTransformer):
    def __init__(
        self,
        roots: Collection[cst.Name],
        becomes: Becomes,
        preceded: Collection[Line],
    ) -> None:
        super().__init__()
        self._roots = roots
        self._becomes = becomes
        self._preceded = preceded

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        if original_node in self._roots:
            return updated_node.with_changes(value="dgl_flash")
        return updated_node

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        if len(original_node.body) == 1:
            only = original_node.body[0]
            lines = _on_lines(updated_node, self._becomes.get(only, updated_node.body))
        else:
            lines = [updated_node.with_changes(body=self._joined(original_node, updated_node))]
        if original_node in self._preceded:
            first = _flash_line(lines[0].leading_lines)
            lines = [first, lines[0].with_changes(leading_lines=()), *lines[1:]]
        return cst.FlattenSentinel(lines)

    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.SimpleStatementSuite:
        body = self._joined(original_node, updated_node)
        if original_node in self._preceded:
            body = [_followed(_flash_import()), *body]
        return updated_node.with_changes(body=body)

    def _joined(self, original: Line, updated: Line) -> list[cst.BaseSmallStatement]:
        """Small statements of one line, with `;` between those that one became."""
        body: list[cst.BaseSmallStatement] = []
        for old, new in zip(original.body, updated.body, strict=True):
            *front, last = self._becomes.get(old, [new])
            body.extend(map(_followed, front))
            body.append(last.with_changes(semicolon=new.semicolon))
        return body


def _on_lines(
    line: cst.SimpleStatementLine, statements: Sequence[cst.BaseSmallStatement]
) -> list[cst.SimpleStatementLine]:
    """A line for each statement; comments stay with the first, those for linters with all."""
    comment = line.trailing_whitespace.comment
    for_all = comment is not None and comment.value.startswith(("# noqa", "# type:", "# isort"))
    plain = line.trailing_whitespace.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
    first, *others = statements
    return [
        line.with_changes(body=[first]),
        *(
            cst.SimpleStatementLine(
                body=[other], trailing_whitespace=line.trailing_whitespace if for_all else plain
            )
            for other in others
        ),
    ]


def _followed(statement: cst.BaseSmallStatement) -> cst.BaseSmallStatement:
    semicolon = cst.Semicolon(whitespace_after=cst.SimpleWhitespace(" "))
    return statement.with_changes(semicolon=semicolon)


def _flash_import() -> cst.Import:
    return cst.Import(names=[cst.ImportAlias(name=cst.Name("dgl_flash"))])


def _flash_line(leading: Sequence[cst.EmptyLine]) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine(
        body=[_flash_import()],
        leading_lines=leading,
        trailing_whitespace=cst.TrailingWhitespace(
            whitespace=cst.SimpleWhitespace("  "), comment=cst.Comment(_ABOVE)
        ),
    )
