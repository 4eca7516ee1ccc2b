"""Every way to reach dgl.nn, before and after."""

from __future__ import annotations

import pytest

from dgl_flash.migration.source import migrate_source

ABOVE = "import dgl_flash  # before `import dgl`\n"

# name -> (before, after); a test each, and each must be idempotent.
IMPORTS = {
    "module": ("import dgl.nn\n", "import dgl_flash.nn\n"),
    "module_as": ("import dgl.nn as x\n", "import dgl_flash.nn as x\n"),
    "module_as_nn": ("import dgl.nn as nn\n", "import dgl_flash.nn as nn\n"),
    "module_as_dgl": (
        "import dgl.nn as dgl\ndgl.GATConv\n",
        "import dgl_flash.nn as dgl\ndgl.GATConv\n",
    ),
    "pytorch_as": ("import dgl.nn.pytorch as x\n", "import dgl_flash.nn.pytorch as x\n"),
    "functional_as": ("import dgl.nn.functional as F\n", "import dgl_flash.nn.functional as F\n"),
    "deep_module": (
        "import dgl.nn.pytorch.conv.gatconv\ndgl.nn.pytorch.conv.gatconv.GATConv\n",
        "import dgl_flash.nn.pytorch.conv.gatconv\ndgl_flash.nn.pytorch.conv.gatconv.GATConv\n",
    ),
    "among_others": (
        "import os, dgl.nn as x , sys  # c\n",
        "import os, dgl_flash.nn as x , sys  # c\n",
    ),
    "names": (
        "from dgl.nn import GATConv, SAGEConv as Sage\n",
        "from dgl_flash.nn import GATConv, SAGEConv as Sage\n",
    ),
    "node_embedding": (
        "from dgl.nn import NodeEmbedding\n",
        "from dgl_flash.nn import NodeEmbedding\n",
    ),
    "pytorch_names": (
        "from dgl.nn.pytorch import GATConv as B\n",
        "from dgl_flash.nn.pytorch import GATConv as B\n",
    ),
    "conv_names": (
        "from dgl.nn.pytorch.conv import GATConv\n",
        "from dgl_flash.nn.pytorch.conv import GATConv\n",
    ),
    "deep_names": (
        "from dgl.nn.pytorch.conv.gatconv import GATConv\n",
        "from dgl_flash.nn.pytorch.conv.gatconv import GATConv\n",
    ),
    "deepest_that_has_it": (
        "from dgl.nn.pytorch.conv.gatconv import GATConv, edge_softmax\n",
        "from dgl_flash.nn.pytorch.conv.gatconv import GATConv\n"
        "from dgl_flash.nn.pytorch import edge_softmax\n",
    ),
    "deeper_than_ours": (
        "from dgl.nn.pytorch.conv.newconv import GATConv\n",
        "from dgl_flash.nn.pytorch.conv import GATConv\n",
    ),
    "submodule": (
        "from dgl.nn import pytorch as p, functional as F\n",
        "from dgl_flash.nn import pytorch as p, functional as F\n",
    ),
    "nn": ("from dgl import nn\n", "from dgl_flash import nn\n"),
    "nn_split": (
        "from dgl import nn as dglnn, DGLGraph\n",
        "from dgl_flash import nn as dglnn\nfrom dgl import DGLGraph\n",
    ),
    "nn_split_at_the_end": (
        "from dgl import DGLGraph, nn  # noqa: F401\n",
        "from dgl_flash import nn  # noqa: F401\nfrom dgl import DGLGraph  # noqa: F401\n",
    ),
    "star": ("from dgl.nn import *\nGATConv\n", "from dgl_flash.nn import *\nGATConv\n"),
    "star_pytorch": ("from dgl.nn.pytorch import *\n", "from dgl_flash.nn.pytorch import *\n"),
    "functional": (
        "from dgl.nn.functional import edge_softmax\n",
        "from dgl_flash.nn.functional import edge_softmax\n",
    ),
    "parentheses": (
        "from dgl.nn import (  # layers\n    GATConv,  # one\n    SAGEConv,\n)  # end\n",
        "from dgl_flash.nn import (  # layers\n    GATConv,  # one\n    SAGEConv,\n)  # end\n",
    ),
    "parentheses_split": (
        "from dgl import (\n    nn,  # layers\n    graph,\n    # last\n    batch,\n)\n",
        "from dgl_flash import (\n    nn,  # layers\n)\n"
        "from dgl import (\n    graph,\n    # last\n    batch,\n)\n",
    ),
    "continuation": (
        "from dgl.nn import GATConv, \\\n    SAGEConv\n",
        "from dgl_flash.nn import GATConv, \\\n    SAGEConv\n",
    ),
    "continuation_split": (
        "from dgl import nn, \\\n    graph\n",
        "from dgl_flash import nn\nfrom dgl import graph\n",
    ),
    "semicolons": (
        "import os; import dgl.nn; import sys\ndgl.graph\n",
        "import os; import dgl_flash.nn; import dgl; import sys\ndgl.graph\n",
    ),
    "in_function": (
        "def f():\n    # why\n    from dgl.nn import GATConv  # here\n    return GATConv\n",
        "def f():\n    # why\n    from dgl_flash.nn import GATConv  # here\n    return GATConv\n",
    ),
    "in_try": (
        "try:\n    import dgl.nn as x\nexcept ImportError:\n    x = None\n",
        "try:\n    import dgl_flash.nn as x\nexcept ImportError:\n    x = None\n",
    ),
    "in_if": ("if 1: import dgl.nn as x\n", "if 1: import dgl_flash.nn as x\n"),
    "no_newline_at_the_end": ("import dgl.nn as x", "import dgl_flash.nn as x"),
}
USES = {
    "attribute": (
        "import dgl\ndgl.nn.GATConv(1, 2, 3)\n",
        f"{ABOVE}import dgl\ndgl_flash.nn.GATConv(1, 2, 3)\n",
    ),
    "attribute_pytorch": (
        "import dgl\nx = dgl.nn.pytorch.GATConv\n",
        f"{ABOVE}import dgl\nx = dgl_flash.nn.pytorch.GATConv\n",
    ),
    "attribute_functional": (
        "import dgl\ndgl.nn.functional.edge_softmax(g, e)\n",
        f"{ABOVE}import dgl\ndgl_flash.nn.functional.edge_softmax(g, e)\n",
    ),
    "attribute_of_alias": (
        "import dgl as d\nd.nn.GATConv; d.graph\n",
        f"{ABOVE}import dgl as d\ndgl_flash.nn.GATConv; d.graph\n",
    ),
    "attribute_after_submodule": (
        "import dgl.function\ndgl.nn.GATConv\n",
        f"{ABOVE}import dgl.function\ndgl_flash.nn.GATConv\n",
    ),
    "module_object": (
        "import dgl\nlayers = dgl.nn\n",
        f"{ABOVE}import dgl\nlayers = dgl_flash.nn\n",
    ),
    "module_with_other_uses": (
        "import dgl.nn  # c\ndgl.nn.GATConv; dgl.graph\n",
        "import dgl_flash.nn  # c\nimport dgl\ndgl_flash.nn.GATConv; dgl.graph\n",
    ),
    "base_class_decorator_annotation": (
        "import dgl\nclass A(dgl.nn.GATConv):\n    x: dgl.nn.GATConv = dgl.nn.SAGEConv\n",
        f"{ABOVE}import dgl\nclass A(dgl_flash.nn.GATConv):\n"
        "    x: dgl_flash.nn.GATConv = dgl_flash.nn.SAGEConv\n",
    ),
    "module_beside_dgl": (
        "import dgl\nimport dgl.nn\ndgl.nn.GATConv; dgl.graph\n",
        f"{ABOVE}import dgl\nimport dgl_flash.nn\ndgl_flash.nn.GATConv; dgl.graph\n",
    ),
    "module_before_dgl": (
        "import dgl.nn\nimport os\nimport dgl.function\ndgl.nn.GATConv; dgl.graph\n",
        "import dgl_flash.nn\nimport os\nimport dgl.function\ndgl_flash.nn.GATConv; dgl.graph\n",
    ),
    "module_long_before_dgl": (
        "import dgl.nn\ndgl.graph\nimport dgl\n",
        "import dgl_flash.nn\nimport dgl\ndgl.graph\nimport dgl\n",
    ),
    "two_modules": (
        "import dgl.nn\nimport dgl.nn.functional\ndgl.nn.GATConv; dgl.graph\n",
        "import dgl_flash.nn\nimport dgl\nimport dgl_flash.nn.functional\n"
        "dgl_flash.nn.GATConv; dgl.graph\n",
    ),
    "two_modules_in_one_statement": (
        "import dgl.nn, dgl.function\ndgl.graph\n",
        "import dgl_flash.nn, dgl.function\ndgl.graph\n",
    ),
    "graph_in_a_string_annotation": (
        "import dgl.nn\ndef f(g: 'dgl.DGLGraph'): ...\n",
        "import dgl_flash.nn\nimport dgl\ndef f(g: 'dgl.DGLGraph'): ...\n",
    ),
    "in_f_string_and_lambda": (
        "import dgl\nf'{dgl.nn.GATConv!r}'\nlambda: dgl.nn.GATConv\n"
        "[dgl.nn.GATConv for dgl in ()]\n",
        f"{ABOVE}import dgl\nf'{{dgl_flash.nn.GATConv!r}}'\nlambda: dgl_flash.nn.GATConv\n"
        "[dgl.nn.GATConv for dgl in ()]\n",
    ),
    "odd_spaces": (
        "import dgl\nx = (dgl . nn # c\n     .GATConv)\n",
        f"{ABOVE}import dgl\nx = (dgl_flash . nn # c\n     .GATConv)\n",
    ),
    "keyword_is_no_use": (
        "import dgl.nn\nf(dgl=dgl.nn.GATConv)\n",
        "import dgl_flash.nn\nf(dgl=dgl_flash.nn.GATConv)\n",
    ),
    "local_variable": (
        "import dgl\ndgl.nn.GATConv\ndef f(dgl):\n    return dgl.nn.GATConv\n",
        f"{ABOVE}import dgl\ndgl_flash.nn.GATConv\ndef f(dgl):\n    return dgl.nn.GATConv\n",
    ),
    "optional": (
        "try:\n    import dgl\nexcept ImportError:\n    dgl = None\ndgl.nn.GATConv\n",
        f"try:\n    {ABOVE}    import dgl\nexcept ImportError:\n    dgl = None\n"
        "dgl_flash.nn.GATConv\n",
    ),
}
ORDER = {
    "docstring_future_and_comments": (
        '#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n"""Doc."""\n\n'
        "from __future__ import annotations\n\nimport os\n\n# graphs\nimport dgl\n"
        "import dgl.nn as x\n",
        '#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n"""Doc."""\n\n'
        f"from __future__ import annotations\n\nimport os\n\n# graphs\n{ABOVE}import dgl\n"
        "import dgl_flash.nn as x\n",
    ),
    "in_order_already": (
        "import dgl.nn as x\nimport dgl\n",
        "import dgl_flash.nn as x\nimport dgl\n",
    ),
    "from_dgl_first": (
        "from dgl.data import CoraGraphDataset\nfrom dgl.nn import GATConv\n",
        f"{ABOVE}from dgl.data import CoraGraphDataset\nfrom dgl_flash.nn import GATConv\n",
    ),
    "import_is_there": (
        "import dgl_flash\nimport dgl\ndgl.nn.GATConv\n",
        "import dgl_flash\nimport dgl\ndgl_flash.nn.GATConv\n",
    ),
    "another_name_is_there": (
        "import dgl_flash as f\nimport dgl\ndgl.nn.GATConv\n",
        f"import dgl_flash as f\n{ABOVE}import dgl\ndgl_flash.nn.GATConv\n",
    ),
    "several_imports": (
        "import dgl\nimport dgl.function as fn\nimport dgl.data\ndef f():\n"
        "    import dgl\n    dgl.nn.GATConv\ndgl.nn.GATConv\n",
        f"{ABOVE}import dgl\nimport dgl.function as fn\nimport dgl.data\ndef f():\n"
        "    import dgl\n    dgl_flash.nn.GATConv\ndgl_flash.nn.GATConv\n",
    ),
    "in_one_statement_and_in_order": (
        "import dgl_flash, dgl\ndgl.nn.GATConv\n",
        "import dgl_flash, dgl\ndgl_flash.nn.GATConv\n",
    ),
    "in_one_statement": (
        "import torch, dgl, dgl_flash\ndgl.nn.GATConv\n",
        f"{ABOVE}import torch, dgl, dgl_flash\ndgl_flash.nn.GATConv\n",
    ),
    "functions_run_later": (
        "def f():\n    from dgl.nn import GATConv\nimport dgl\n",
        f"def f():\n    from dgl_flash.nn import GATConv\n{ABOVE}import dgl\n",
    ),
    "in_function_only": (
        "def f():\n    import dgl\n    return dgl.nn.GATConv\n",
        f"def f():\n    {ABOVE}    import dgl\n    return dgl_flash.nn.GATConv\n",
    ),
    "function_sees_the_module": (
        "def f():\n    import dgl\n    return dgl.nn.GATConv\nimport dgl_flash\n",
        "def f():\n    import dgl\n    return dgl_flash.nn.GATConv\nimport dgl_flash\n",
    ),
    "both_branches": (
        "if a:\n    import dgl\nelse:\n    import dgl as dgl\ndgl.nn.GATConv\n",
        f"if a:\n    {ABOVE}    import dgl\nelse:\n    {ABOVE}    import dgl as dgl\n"
        "dgl_flash.nn.GATConv\n",
    ),
    "suite_on_one_line": (
        "if a: import dgl\ndgl.nn.GATConv\n",
        "if a: import dgl_flash; import dgl\ndgl_flash.nn.GATConv\n",
    ),
    "class_body_is_hidden_from_methods": (
        "class A:\n    import dgl_flash\n    def f(self):\n        import dgl\n"
        "        dgl.nn.GATConv\n",
        "class A:\n    import dgl_flash\n    def f(self):\n"
        f"        {ABOVE}        import dgl\n        dgl_flash.nn.GATConv\n",
    ),
}
PAIRS = {**IMPORTS, **USES, **ORDER}

UNTOUCHED = {
    "no_nn": "import dgl\ndgl.graph\n",
    "torch_nn": "import dgl\nfrom torch import nn\nnn.Linear\n",
    "relative": "from .dgl import nn\nfrom . import dgl\ndgl.nn.GATConv\n",
    "another_dgl": "dgl = load()\ndgl.nn.GATConv\n",
    "longer_name": "import dgl.nnx\nimport xdgl.nn as nn\ndgl.nnx\n",
    "text": '"""Uses dgl.nn."""\nimport dgl\nprint("dgl.nn")  # dgl.nn\n',
    "migrated": f"{ABOVE}import dgl\nimport dgl_flash.nn as nn\ndgl_flash.nn.GATConv\n",
}


@pytest.mark.parametrize("name", PAIRS)
def test_becomes(name: str) -> None:
    before, after = PAIRS[name]
    result = migrate_source(before)
    assert result.text == after
    assert result.findings == ()
    assert len(result.parts) == 1


@pytest.mark.parametrize("name", PAIRS)
def test_a_second_time_changes_nothing(name: str) -> None:
    again = migrate_source(PAIRS[name][1])
    assert again.text == PAIRS[name][1]
    assert again.parts == ()


@pytest.mark.parametrize("name", PAIRS)
def test_what_comes_out_is_python(name: str) -> None:
    compile(PAIRS[name][1], name, "exec")


@pytest.mark.parametrize("name", UNTOUCHED)
def test_stays(name: str) -> None:
    result = migrate_source(UNTOUCHED[name])
    assert result.text == UNTOUCHED[name]
    assert result.findings == ()


@pytest.mark.parametrize("name", PAIRS)
def test_line_ends_are_kept(name: str) -> None:
    before, after = PAIRS[name]
    assert migrate_source(before.replace("\n", "\r\n")).text == after.replace("\n", "\r\n")
