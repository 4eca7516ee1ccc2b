"""Migrated programs run, on the layers of dgl_flash."""

from __future__ import annotations

from dgl_flash.migration.source import migrate_source
from tests.compat.scripts import run

HEAD = "import torch\n"
TAIL = """
graph = dgl.add_self_loop(dgl.rand_graph(10, 20))
out = Conv(4, 2, 3)(graph, torch.ones(10, 4))
print(Conv.__module__, tuple(out.shape))
"""
PROGRAMS = {
    "attribute": "import dgl\nConv = dgl.nn.GATConv\n",
    "attribute_of_alias": "import dgl as d\nConv = d.nn.pytorch.GATConv\ndgl = d\n",
    "module": "import dgl.nn\nConv = dgl.nn.GATConv\n",
    "module_as": "import dgl\nimport dgl.nn as x\nConv = x.GATConv\n",
    "deep": "from dgl.nn.pytorch.conv.gatconv import GATConv as Conv, edge_softmax\nimport dgl\n",
    "split": "from dgl import nn as dglnn, DGLGraph\nConv = dglnn.GATConv\nimport dgl\n",
    "star": "import dgl\nfrom dgl.nn import *\nConv = GATConv\n",
    "function": "import dgl\ndef f():\n    import dgl\n    return dgl.nn.GATConv\nConv = f()\n",
    "base_class": "import dgl\nclass Own(dgl.nn.GATConv): pass\nConv = Own.__base__\n",
    "optional": "try:\n    import dgl\nexcept ImportError: dgl = None\nConv = dgl.nn.GATConv\n",
}


def test_programs_run_on_dgl_flash() -> None:
    # One interpreter for all: what takes time is importing torch and DGL.
    programs = {name: migrate_source(HEAD + text + TAIL).text for name, text in PROGRAMS.items()}
    printed = run(
        f"for name, text in {programs!r}.items():\n"
        "    print(name, end=' ')\n"
        "    exec(text, {'__name__': name})\n",
        warnings="ignore",
    )
    expected = [f"{name} dgl_flash.nn.conv.gatconv (10, 3, 2)" for name in PROGRAMS]
    assert printed.splitlines() == expected


def test_dgl_flash_comes_first_so_that_dgl_can_be_imported() -> None:
    text = migrate_source(PROGRAMS["attribute"]).text
    program = f"{text}import sys\nprint(list(sys.modules).index('dgl_flash'))\n"
    order = run(
        f"{program}print(list(sys.modules).index('dgl'))\nprint(Conv.__module__)\n",
        warnings="ignore",
    ).split()
    assert int(order[0]) < int(order[1])
    assert order[2] == "dgl_flash.nn.conv.gatconv"
