"""`import dgl` with the DGL and the torch that are installed, each order in its own process."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from .scripts import environment, hide, run

# Not importorskip: DGL may be unable to be imported here, which is what these tests are about.
needs_dgl = pytest.mark.skipif(
    find_spec("dgl") is None or find_spec("pandas") is None,
    reason="needs DGL and pandas, which DGL imports",
)

# Prints whether DGL imports without help; the tests of the failing order need that it does not.
ALONE = """
try:
    import dgl
except Exception:
    print("fails")
"""

# A convolution, the samplers and save/load: what a script does that does not use graphbolt.
USE = """
import pickle, tempfile, torch, dgl, dgl.nn, dgl.dataloading
g = dgl.graph(([0, 1, 2], [1, 2, 0]))
assert dgl.nn.GATv2Conv(3, 2, 2)(g, torch.ones(3, 3)).shape == (3, 2, 2)
assert pickle.loads(pickle.dumps(g)).num_edges() == 3
sampler = dgl.dataloading.NeighborSampler([1])
assert sampler.sample(g, torch.tensor([0]))[2][0].num_edges() == 1
try:
    dgl.nn.GraphConv(3, 2)(dgl.graph(([0], [1])), torch.ones(2, 3))
except dgl.DGLError:
    pass
else:
    raise AssertionError("expected a DGLError")
"""


@pytest.fixture(scope="module")
def fails_alone() -> None:
    if "fails" not in run(ALONE, warnings="default"):
        pytest.skip("DGL imports by itself beside this torch")


@needs_dgl
def test_dgl_flash_first(fails_alone: None) -> None:
    run("import dgl_flash\n" + USE)


@needs_dgl
def test_dgl_first_then_again_after_dgl_flash(fails_alone: None) -> None:
    again = """
import sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import dgl_flash
assert "above the first `import dgl`" in str(caught[-1].message), caught
assert caught[-1].filename == "<string>", caught[-1].filename
"""
    # Every sub-module must hang on the package, as after an import that went well.
    bound = """
loose = [n for n in sys.modules if n.startswith("dgl.") and n.count(".") == 1
         and not hasattr(dgl, n[4:])]
assert not loose, loose
import importlib
assert importlib.import_module("dgl.frame").Frame is type(g._node_frames[0])
"""
    run(ALONE + again + USE + bound)


@needs_dgl
@pytest.mark.parametrize("package", ["torchdata", "pydantic"])
def test_what_only_graphbolt_needs_may_be_absent(package: str) -> None:
    run(hide(package) + "import dgl_flash\n" + USE)


def test_without_dgl() -> None:
    code = """
import dgl_flash
try:
    import dgl
except ModuleNotFoundError as error:
    assert error.name == "dgl"
else:
    raise AssertionError("DGL is hidden")
"""
    run(hide("dgl") + code)


@needs_dgl
def test_notebook_kernel_recovers_from_the_wrong_order(
    fails_alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.v4.new_notebook()
    wrong = nbformat.v4.new_code_cell("import dgl", metadata={"tags": ["raises-exception"]})
    notebook.cells = [wrong, nbformat.v4.new_code_cell("import dgl_flash\n" + USE)]
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert any(output.output_type == "error" for output in notebook.cells[0].outputs)
    shown = "".join(output.get("text", "") for output in notebook.cells[1].outputs)
    assert "above the first `import dgl`" in shown
