"""``NodeEmbedding`` is DGL's class, imported when it is asked for."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from dgl_flash.nn import missing, sparse_emb
from tests.nn.common import ours, theirs

PATHS = ["dgl_flash.nn", "dgl_flash.nn.pytorch", "dgl_flash.nn.sparse_emb"]
# A finder that knows no DGL, before anything is imported.
WITHOUT_DGL = """
import sys
class NoDGL:
    def find_spec(self, name, path=None, target=None):
        if name == "dgl" or name.startswith("dgl."):
            raise {error}
sys.meta_path.insert(0, NoDGL())
for way in {ways}:
    try:
        exec(way)
    except ImportError as error:
        print(error)
"""


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], check=False, timeout=120, capture_output=True, text=True
    )


@pytest.mark.parametrize("path", ["nn", "nn.pytorch", "nn.sparse_emb", "nn.pytorch.sparse_emb"])
def test_it_is_dgls_class(path):
    module = importlib.import_module(f"dgl_flash.{path}")
    assert module.NodeEmbedding is theirs.NodeEmbedding


def test_one_module_under_both_paths():
    assert importlib.import_module("dgl_flash.nn.pytorch.sparse_emb") is sparse_emb
    assert ours.sparse_emb is sparse_emb


def test_it_is_used_as_dgls():
    embedding = ours.NodeEmbedding(5, 3, "dgl_flash_test_sparse_emb")
    assert embedding.weight.shape == (5, 3)


def test_dgl_is_imported_when_the_name_is_asked_for():
    code = "import sys\nfrom dgl_flash.nn import *\n"
    code += "".join(f"import {path}\n" for path in PATHS) + "assert 'dgl' not in sys.modules\n"
    code += "".join(f"from {path} import NodeEmbedding\n" for path in PATHS)
    code += "assert NodeEmbedding.__module__ == 'dgl.nn.pytorch.sparse_emb'"
    found = run(code)
    assert found.returncode == 0, found.stderr
    assert not set(missing.LAZY) & set(ours.__all__)


@pytest.mark.parametrize(
    "error", ["ModuleNotFoundError(name)", "OSError('no libdgl')", "RuntimeError('other torch')"]
)
def test_without_dgl_the_error_says_what_to_do(error):
    ways = [f"from {path} import NodeEmbedding" for path in PATHS]
    ways += [f"import {path} as m; m.NodeEmbedding" for path in PATHS]
    found = run(WITHOUT_DGL.format(error=error, ways=ways))
    assert found.returncode == 0, found.stderr
    texts = found.stdout.splitlines()
    assert len(texts) == len(ways)
    for text in texts:
        assert text.startswith("NodeEmbedding is the class of DGL")
        for part in (error.partition("(")[0], "install DGL 2.1.0", "torch.nn.Embedding("):
            assert part in text


def test_other_names_fail_as_usual():
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = sparse_emb.Nonsense
    assert "NodeEmbedding" in dir(sparse_emb)
