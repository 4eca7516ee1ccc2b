"""What ``dgl-flash doctor`` collects: facts, problems and advice, each with a way to mend it."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import metadata


@dataclass(frozen=True)
class Remark:
    """Something to do.

    Attributes
    ----------
    text : str
        What is missing or wrong.
    remedy : str
        The command that mends it, or what to do where no single command does.
    """

    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}\n    {self.remedy}"


@dataclass
class Findings:
    """What was found so far.

    Attributes
    ----------
    facts : list of (str, str)
        Name and finding.
    problems : list of Remark
        What is broken.
    advice : list of Remark
        What would bring more, and works without.
    """

    facts: list[tuple[str, str]] = field(default_factory=list)
    problems: list[Remark] = field(default_factory=list)
    advice: list[Remark] = field(default_factory=list)

    def fact(self, name: str, finding: str) -> None:
        """Note what is there."""
        self.facts.append((name, finding))

    def problem(self, text: str, remedy: str) -> None:
        """Note what is broken, and how to mend it."""
        self.problems.append(Remark(text, remedy))

    def advise(self, text: str, remedy: str) -> None:
        """Note what could be better, and how."""
        self.advice.append(Remark(text, remedy))


def version_of(package: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
