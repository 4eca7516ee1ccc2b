"""``dgl-flash doctor``: what is installed, what runs, what is broken and how to mend it."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from dgl_flash import __version__

from . import doctor_caches, doctor_dgl, doctor_gpu, doctor_smoke
from .doctor_findings import Findings, Remark, version_of

# Package -> what it is for. CuPy is judged by the GPU, DGL by itself.
OPTIONAL = {
    "scikit-learn": "the digits data set of the demo",
    "rich": "progress and table of the demo",
}


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor found.

    Attributes
    ----------
    facts : tuple of (str, str)
        Name and finding.
    problems : tuple of Remark
        What is broken.
    advice : tuple of Remark
        What is optional and missing.
    """

    facts: tuple[tuple[str, str], ...]
    problems: tuple[Remark, ...]
    advice: tuple[Remark, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing is broken."""
        return not self.problems

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.facts)
        lines = [f"{name:{width}}  {finding}" for name, finding in self.facts]
        for title, remarks in (("broken:", self.problems), ("to get more:", self.advice)):
            if remarks:
                lines += ["", title, *(f"- {remark}" for remark in remarks)]
        return "\n".join(lines)


def diagnose() -> Diagnosis:
    """Look at packages, devices and caches, and run one small layer.

    Returns
    -------
    Diagnosis
        Facts, problems and advice.
    """
    findings = Findings()
    findings.fact("dgl_flash", __version__)
    findings.fact("python", platform.python_version())
    for package in ("torch", "numpy", "scipy"):
        findings.fact(package, version_of(package) or "missing")
    # Before CuPy, which does not even import where it cannot write.
    doctor_caches.look(findings, compiles=bool(doctor_gpu.cupy_distributions()))
    doctor_gpu.look(findings)
    doctor_dgl.look(findings)
    for package, purpose in OPTIONAL.items():
        version = version_of(package)
        findings.fact(package, version or "not installed")
        if version is None:
            findings.advise(
                f"{package} is not installed: {purpose}", 'pip install "dgl_flash[demo]"'
            )
    doctor_smoke.look(findings)
    return Diagnosis(tuple(findings.facts), tuple(findings.problems), tuple(findings.advice))


def run() -> int:
    """Print the diagnosis.

    Returns
    -------
    int
        1 when something is broken, else 0.
    """
    diagnosis = diagnose()
    print(diagnosis)
    return 0 if diagnosis.healthy else 1
