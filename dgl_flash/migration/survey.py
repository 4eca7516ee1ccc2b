"""Reading a module: its imports of ``dgl``, what is used of them, and what must be left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst
from libcst import matchers as m
from libcst.metadata import (
    BaseAssignment,
    ImportAssignment,
    PositionProvider,
    Scope,
    ScopeProvider,
)

from . import dynamic
from .bindings import (
    Binding,
    ImportNode,
    Referents,
    bindings_of,
    chain,
    imported_path,
    imports_of,
    module_of,
    referents,
)
from .result import Finding
from .targets import OLD, home, is_module, star_names, why_missing

# What a star import of dgl.nn brings by accident, beside the modules and classes of DGL.
_NAMES = """
    nn os sys importlib backend_name pytorch biased_mha degree_encoder edgepred egt gnnexplainer
    graphormer lap_pos_encoder path_encoder pgexplainer spatial_encoder subgraphx transe transr
    NodeEmbedding
"""
_ACCIDENTS = frozenset(_NAMES.split())
Metadata = Mapping[type[cst.BaseMetadataProvider[object]], Mapping[cst.CSTNode, object]]


class Survey:
    """What a module does with ``dgl.nn``.

    Parameters
    ----------
    module : Module
        The module of `metadata`'s wrapper.
    metadata : mapping
        Metadata of scopes and positions.
    keep_dgl : bool
        True if code outside of the module may use its name ``dgl``.

    Attributes
    ----------
    roots : set of Name
        Names at the front of ``dgl.nn...`` that become ``dgl_flash``.
    binders : set of ImportAlias
        Imports through which those names are used: each needs ``import dgl_flash`` above.
    kept : set of ImportAlias or ImportFrom
        Imports of ``dgl.nn`` that have to stay.
    findings : list of Finding
        What people have to decide.
    keep_dgl : bool
        Also true if an annotation is a string that names ``dgl``.
    """

    def __init__(
        self,
        module: cst.Module,
        metadata: Metadata,
        keep_dgl: bool = False,
    ) -> None:
        self._scopes = metadata[ScopeProvider]
        self._positions = metadata[PositionProvider]
        self.known: dict[cst.CSTNode, Binding] = {}
        self.roots: set[cst.Name] = set()
        self.binders: set[cst.ImportAlias] = set()
        self.kept: set[cst.CSTNode] = set()
        self.keep_dgl = keep_dgl
        self._needs_dgl: set[cst.ImportAlias] = set()
        self.findings: list[Finding] = []
        imports = imports_of(module)
        for statement in imports:
            for binding in bindings_of(statement):
                asname = binding.alias.asname
                self.known[asname.name if asname else binding.alias.name] = binding
        self._nones = _set_to_none(module)
        self._stores = _stored_to(module)
        self.names: dict[str, list[cst.Name]] = {}
        module.visit(_Uses(self))
        for statement in imports:
            self._read_import(statement)

    @property
    def going(self) -> set[cst.ImportAlias]:
        """Aliases of ``import dgl.nn``, which no longer bind ``dgl``."""
        return {
            binding.alias
            for binding in self.known.values()
            if binding.unaliased
            and _inside(imported_path(binding))
            and binding.alias not in self.kept
        }

    @property
    def wanted(self) -> list[Binding]:
        """Those of them whose name ``dgl`` is used for something else too, in order."""
        going = self.going
        # What was left, such as a string with code, may use the name too.
        if not self.keep_dgl and not self.findings:
            going &= self._needs_dgl
        return [binding for binding in self.known.values() if binding.alias in going]

    def path_of(self, node: cst.BaseExpression) -> str | None:
        """Resolve an expression.

        Parameters
        ----------
        node : BaseExpression
            Any expression.

        Returns
        -------
        str or None
            Its path if it starts at an import of ``dgl``, and at nothing else.
        """
        parts = chain(node)
        path = self._look_up(parts[0]).path if parts else None
        return ".".join((path, *parts[1])) if parts and path else None

    def use(self, node: cst.BaseExpression, patched: bool = False) -> None:
        """Take note of a name or a chain of attributes.

        Parameters
        ----------
        node : BaseExpression
            A chain; others are ignored.
        patched : bool
            True if something is assigned to an attribute of it.
        """
        parts = chain(node)
        if parts is None:
            return
        root, attributes = parts
        self.names.setdefault(root.value, []).append(root)
        found = self._look_up(root)
        if not found.bindings:
            return
        paths = {binding.path for binding in found.bindings}
        if found.path is not None and is_module(found.path):
            self._use_of_module(node, root, found, attributes, patched)
        elif (
            "dgl" in paths
            and list(attributes[:1]) == ["nn"]
            and self._rewrites(node, root, found, attributes, patched)
        ):
            self.roots.add(root)
            self.binders.update(binding.alias for binding in found.bindings)
        elif "dgl" in paths:
            self._needs_dgl.update(b.alias for b in found.bindings if b.unaliased)

    def note(self, node: cst.CSTNode, text: str | None) -> None:
        """Add something for people to decide.

        Parameters
        ----------
        node : CSTNode
            Where.
        text : str or None
            What; None for nothing.
        """
        if text is not None:
            finding = Finding(self._positions[node].start.line, text)  # type: ignore[attr-defined]
            if finding not in self.findings:
                self.findings.append(finding)

    def _look_up(self, name: cst.Name) -> Referents:
        return referents(self._assignments(name, name.value), self.known, self._nones)

    def _assignments(self, node: cst.CSTNode, name: str) -> set[BaseAssignment]:
        scope = self._scopes.get(node)
        return set(scope[name]) if isinstance(scope, Scope) else set()

    def _rewrites(
        self,
        node: cst.BaseExpression,
        root: cst.Name,
        found: Referents,
        attributes: Sequence[str],
        patched: bool,
    ) -> bool:
        """Decide whether ``dgl.nn...`` can become ``dgl_flash.nn...``; otherwise say why not."""
        dotted = ".".join(("dgl", *attributes))
        reason = why_missing(dotted)
        if found.path is None:
            reason = f"`{root.value}` may stand for something else than dgl here"
        elif patched or node in self._stores:
            reason = f"this changes {dotted}; layers that come from dgl_flash.nn do not see it"
        elif self._is_taken(node):
            reason = "`dgl_flash` is the name of something else here"
        if reason is not None:
            self.note(node, f"{reason}; left on dgl")
        return reason is None

    def _is_taken(self, node: cst.BaseExpression) -> bool:
        for assignment in self._assignments(node, "dgl_flash"):
            if not isinstance(assignment, ImportAssignment):
                return True
            if not isinstance(assignment.node, cst.Import):
                return True
        return False

    def _use_of_module(
        self,
        node: cst.BaseExpression,
        root: cst.Name,
        found: Referents,
        attributes: Sequence[str],
        patched: bool,
    ) -> None:
        """Keep the import of a module of ``dgl.nn`` that is used for what ours does not have."""
        dotted = ".".join((str(found.path), *attributes))
        reason = why_missing(dotted)
        if patched or (attributes and node in self._stores):
            reason = f"this changes {dotted}; layers that come from dgl_flash.nn do not see it"
        if reason is not None:
            self.kept.update(binding.alias for binding in found.bindings)
            self.note(
                node,
                f"{reason}; so the import of `{root.value}` is left on dgl. Write {dotted} "
                f"with `import dgl` here, then migrate again",
            )

    def _read_import(self, statement: ImportNode) -> None:
        if isinstance(statement.names, cst.ImportStar):
            self._read_star(statement, module_of(statement))
            return
        for binding in bindings_of(statement):
            path = imported_path(binding)
            if not _inside(path):
                continue
            if isinstance(statement, cst.Import):
                there = is_module(path)
            else:
                there = home(*path.rpartition(".")[::2]) is not None
            if not there:
                self.kept.add(binding.alias)
                reason = why_missing(path) or f"{path} is no module of dgl_flash.nn"
                self.note(statement, f"{reason}; left on dgl")

    def _read_star(self, statement: cst.ImportFrom, module: str) -> None:
        if module == "dgl" and self._unresolved("nn"):
            for name in self._unresolved("nn"):
                self.note(name, "`nn` may come from the star import of dgl; import nn by its name")
        elif _inside(module):
            reason = None if is_module(module) else why_missing(module)
            if reason is None:
                lost = [n for n in sorted(_ACCIDENTS - star_names(module)) if self._unresolved(n)]
                if lost:
                    names = ", ".join(lost)
                    reason = f"the star import may bring {names}; import that by its name"
            if reason is not None:
                self.kept.add(statement)
                self.note(statement, f"{reason}; left on dgl")

    def _unresolved(self, name: str) -> list[cst.Name]:
        """Uses of a name that nothing in the module binds."""
        return [node for node in self.names.get(name, ()) if not self._assignments(node, name)]


class _Uses(cst.CSTVisitor):
    """Shows every name and chain of a module to a survey, but the names in imports."""

    def __init__(self, survey: Survey) -> None:
        super().__init__()
        self._survey = survey

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)  # and not the keyword
        return False

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if chain(node) is not None:
            self._survey.use(node)
            return False
        node.value.visit(self)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        self._survey.use(node)

    def visit_Call(self, node: cst.Call) -> bool:
        survey = self._survey
        survey.note(node, dynamic.in_call(node, survey.path_of))
        target = dynamic.patched(node, survey.path_of)
        if target is None:
            return True
        survey.use(target, patched=True)
        node.func.visit(self)
        for argument in node.args[1:]:
            argument.visit(self)
        return False

    def visit_Subscript(self, node: cst.Subscript) -> None:
        self._survey.note(node, dynamic.in_subscript(node))

    def visit_Annotation(self, node: cst.Annotation) -> None:
        self._survey.note(node, dynamic.in_annotation(node))
        self._survey.keep_dgl |= dynamic.names_dgl(node)


def _inside(path: str) -> bool:
    return f"{path}.".startswith(f"{OLD}.")


def _set_to_none(module: cst.Module) -> set[cst.CSTNode]:
    return {
        target.target
        for assign in m.findall(module, m.Assign(value=m.Name("None")))
        if isinstance(assign, cst.Assign)
        for target in assign.targets
    }


def _stored_to(module: cst.Module) -> set[cst.CSTNode]:
    """Expressions that an assignment or ``del`` changes, not those within a subscript of them."""
    kinds = (cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.Del)
    statements = m.AssignTarget() | m.AugAssign() | m.AnnAssign() | m.Del()
    pending: list[cst.CSTNode] = [
        node.target for node in m.findall(module, statements) if isinstance(node, kinds)
    ]
    found: set[cst.CSTNode] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, (cst.Tuple, cst.List)):
            pending.extend(element.value for element in node.elements)
        else:
            found.add(node)
    return found
