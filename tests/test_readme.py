"""What the documents promise."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.compat.scripts import run

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "cuda/README.md"]


@pytest.mark.skipif(find_spec("dgl") is None, reason="the examples use DGL")
def test_the_examples_run() -> None:
    """One after the other: the later ones use what the first one has made."""
    first, order = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    holds = "\nassert out.shape == (1000, 4, 16) and feat.grad is not None\nfirst = out\n"
    same = "\nassert torch.allclose(out, first, atol=1e-5)\n"
    run(first + holds + order + same)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    targets = re.findall(r"\]\(([^)#]+)", path.read_text())
    local = [target for target in targets if not target.startswith("http")]
    assert [target for target in local if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_exist(document: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / document).read_text(), re.MULTILINE)
    assert set(named) - set(targets) == set()
