"""What is left for people: it is listed with its line, and the program still works as before."""

from __future__ import annotations

import pytest

from dgl_flash.migration.result import Finding, MigrationError
from dgl_flash.migration.source import migrate_source

# name -> (code that stays as it is, lines that are listed, part of the text)
LEFT = {
    "no_such_name": ("from dgl.nn import NoSuchThing\n", [1], "dgl.nn.NoSuchThing is not in"),
    "private_name": ("from dgl.nn.pytorch.conv.gatconv import _x\n", [1], "_x is not in"),
    "no_such_module": ("import dgl.nn.nosuch as x\n", [1], "dgl.nn.nosuch is not in"),
    "class_as_module": ("import dgl.nn.GATConv\n", [1], "is no module"),
    "no_such_attribute": ("import dgl\n\ndgl.nn.NoSuchThing\n", [3], "dgl.nn.NoSuchThing"),
    "torch_by_accident": ("from dgl.nn.pytorch.conv.gatconv import nn\n", [1], "nn is not in"),
    "import_by_accident": ("from dgl.nn.pytorch.conv import annotations\n", [1], "is not in"),
    "mxnet": ("from dgl.nn.mxnet import GATConv\n", [1], "another framework"),
    "mxnet_module": ("import dgl.nn.mxnet as x\n", [1], "another framework"),
    "tensorflow": ("from dgl.nn import tensorflow\n", [1], "another framework"),
    "tensorflow_use": ("import dgl\ndgl.nn.tensorflow.GATConv\n", [2], "another framework"),
    "module_that_lacks_a_name": (
        "import dgl.nn as x\nx.GATConv\nx.NoSuchThing\n",
        [3],
        "import of `x` is left on dgl. Write dgl.nn.NoSuchThing with `import dgl`",
    ),
    "patched_alias": ("from dgl import nn\nnn.GATConv = 1\n", [2], "this changes dgl.nn.GATConv"),
    "patched": ("import dgl\ndgl.nn.GATConv = 1\n", [2], "this changes dgl.nn.GATConv"),
    "patched_in_tuple": ("import dgl\na, (dgl.nn.A, b) = 1, (2, 3)\n", [2], "dgl.nn.A"),
    "patched_class": ("import dgl\ndgl.nn.GATConv.forward = f\n", [2], "this changes"),
    "deleted": ("import dgl\ndel dgl.nn.GATConv\n", [2], "this changes dgl.nn.GATConv"),
    "setattr": ("import dgl\nsetattr(dgl.nn, 'GATConv', 1)\n", [2], "this changes dgl.nn"),
    "patch_object": (
        "import dgl\n@mock.patch.object(dgl.nn, 'GATConv')\ndef test(fake): ...\n",
        [2],
        "this changes dgl.nn",
    ),
    "monkeypatch": (
        "import dgl.nn as x\nmonkeypatch.setattr(x, 'GATConv', 1)\n",
        [2],
        "this changes dgl.nn",
    ),
    "import_module": ("importlib.import_module('dgl.nn')\n", [1], "importlib.import_module()"),
    "import_module_f": ("import_module(f'dgl.nn.{x}')\n", [1], "import_module()"),
    "import_module_relative": ("import_module('.nn', 'dgl')\n", [1], "by its name"),
    "dunder_import": ("__import__('dgl.nn.pytorch')\n", [1], "__import__()"),
    "getattr": ("import dgl\ngetattr(dgl, 'nn').GATConv\n", [2], 'getattr(dgl, "nn")'),
    "eval": ("eval('dgl.nn.GATConv')\n", [1], "eval()"),
    "exec": ("exec('''from dgl import nn''')\n", [1], "exec()"),
    "patch": ("@patch('dgl.nn.GATConv')\ndef test(): ...\n", [1], "patch()"),
    "patch_dict": ("with patch.dict('dgl.nn.__dict__'): ...\n", [1], "patch.dict()"),
    "sys_modules": ("sys.modules['dgl.nn'] = x\n", [1], "sys.modules[...]"),
    "sys_modules_get": ("sys.modules.get('dgl.nn')\n", [1], "sys.modules.get()"),
    "cast": ("cast('dgl.nn.GATConv', x)\n", [1], "cast()"),
    "string_annotation": ("def f(x: 'dgl.nn.GATConv'): ...\n", [1], "annotation is a string"),
    "star_of_dgl": ("from dgl import *\n\nnn.GATConv\n", [3], "star import of dgl"),
    "star_by_accident": ("from dgl.nn import *\nnn.Linear\n", [1], "may bring nn"),
    "star_node_embedding": ("from dgl.nn import *\nNodeEmbedding\n", [1], "NodeEmbedding"),
    "star_no_such_module": ("from dgl.nn.mxnet import *\n", [1], "another framework"),
    "two_meanings": (
        "try:\n    import dgl\nexcept ImportError:\n    import fake as dgl\ndgl.nn.GATConv\n",
        [5],
        "`dgl` may stand for something else",
    ),
    "name_is_taken": (
        "import dgl\ndgl_flash = 1\ndgl.nn.GATConv\n",
        [3],
        "`dgl_flash` is the name of something else",
    ),
    "name_is_imported_from_elsewhere": (
        "import dgl\nfrom mine import dgl_flash\ndgl.nn.GATConv\n",
        [3],
        "`dgl_flash` is the name of something else",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_is_left_and_listed(name: str) -> None:
    code, lines, text = LEFT[name]
    result = migrate_source(code)
    assert result.text == code
    assert result.parts == ()
    assert [finding.line for finding in result.findings] == lines
    assert text in result.findings[0].text


def test_every_line_is_listed() -> None:
    code = "import dgl\ndgl.nn.A\n\ndgl.nn.B; dgl.nn.C\neval('dgl.nn')\n"
    assert [finding.line for finding in migrate_source(code).findings] == [2, 4, 4, 5]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "from dgl.nn import GATConv, NoSuchThing\n",
            "from dgl_flash.nn import GATConv\nfrom dgl.nn import NoSuchThing\n",
        ),
        (
            "import dgl.nn\ndgl.nn.GATConv\ndgl.nn.GATConv = 1\n",
            "import dgl_flash.nn\nimport dgl\ndgl_flash.nn.GATConv\ndgl.nn.GATConv = 1\n",
        ),
        (
            "import dgl.nn\ndgl.nn.GATConv\neval('dgl.nn.GATConv')\n",
            "import dgl_flash.nn\nimport dgl\ndgl_flash.nn.GATConv\neval('dgl.nn.GATConv')\n",
        ),
        (
            "import dgl\ndgl.nn.GATConv\ndgl.nn.NoSuchThing\n",
            "import dgl_flash  # before `import dgl`\nimport dgl\ndgl_flash.nn.GATConv\n"
            "dgl.nn.NoSuchThing\n",
        ),
        (
            "import dgl.nn as a, dgl.nn.mxnet as b\n",
            "import dgl_flash.nn as a, dgl.nn.mxnet as b\n",
        ),
    ],
    ids=["names", "patched", "string", "attribute", "framework"],
)
def test_the_rest_of_the_file_is_migrated(before: str, after: str) -> None:
    result = migrate_source(before)
    assert result.text == after
    assert len(result.findings) == 1
    again = migrate_source(after)
    assert again.text == after
    assert len(again.findings) == 1


@pytest.mark.parametrize(
    ("finding", "place"),
    [(Finding(3, "t"), "a.py:3"), (Finding(3, "t", cell=2), "a.py:cell 2:3")],
    ids=["file", "notebook"],
)
def test_place(finding: Finding, place: str) -> None:
    assert finding.place("a.py") == place


def test_unparsable_code_names_the_line() -> None:
    with pytest.raises(MigrationError, match=r"line 2: not the syntax of Python 3"):
        migrate_source("import dgl.nn\nprint dgl.nn\n")


def test_deep_nesting_is_an_error() -> None:
    with pytest.raises(MigrationError, match="nested too deeply"):
        migrate_source(f"import dgl.nn as nn\nx = {' + '.join(['1'] * 3000)}\n")


def test_formatting_that_would_be_lost_is_an_error() -> None:
    with pytest.raises(MigrationError, match="cannot keep its formatting"):
        migrate_source("\fimport dgl.nn as nn\n")


def test_an_annotation_that_is_no_code_is_no_problem() -> None:
    code = "import dgl.nn as nn\ndef f(x: '(N, D) floats'): ...\n"
    assert migrate_source(code).text == code.replace("dgl.nn", "dgl_flash.nn")
