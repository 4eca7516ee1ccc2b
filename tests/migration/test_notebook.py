"""Notebooks: cells are one module, magics survive, and nothing but sources changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dgl_flash.migration.notebook import migrate_notebook
from dgl_flash.migration.result import MigrationError


def notebook(*sources: str, **options: Any) -> str:
    """Text of a notebook, the way Jupyter writes it."""
    cells = [
        {
            "cell_type": "code",
            "execution_count": 1,
            "id": f"c{number}",
            "metadata": {},
            "outputs": [{"output_type": "stream", "name": "stdout", "text": ["dgl.nn é\n"]}],
            "source": source.splitlines(keepends=True),
        }
        for number, source in enumerate(sources)
    ]
    metadata = {"kernelspec": {"language": options.pop("language", "python"), "name": "python3"}}
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False, **options) + "\n"


def sources(text: str) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]


def test_cells_are_one_module() -> None:
    text = notebook("# a\nimport dgl", "x = 1", "", "dgl.nn.GATConv(1, 2, 3)\ndgl.graph", "dgl.nn")
    result = migrate_notebook(text)
    assert sources(result.text) == [
        "# a\nimport dgl_flash  # before `import dgl`\nimport dgl",
        "x = 1",
        "",
        "dgl_flash.nn.GATConv(1, 2, 3)\ndgl.graph",
        "dgl_flash.nn",
    ]
    assert [part.cell for part in result.parts] == [1, 4, 5]
    assert result.parts[1].before == "dgl.nn.GATConv(1, 2, 3)\ndgl.graph"
    assert result.findings == ()
    assert migrate_notebook(result.text).parts == ()


def test_nothing_but_sources_changes() -> None:
    text = notebook("import dgl.nn as x", "def f():\n    x.GATConv")
    assert migrate_notebook(text).text == text.replace("import dgl.nn", "import dgl_flash.nn")


FORMATS = {
    "no_newline_at_the_end": lambda text: text.rstrip("\n"),
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "four_spaces": lambda text: json.dumps(json.loads(text), indent=4, ensure_ascii=False),
    "tabs": lambda text: json.dumps(json.loads(text), indent="\t", ensure_ascii=False),
    "compact": lambda text: json.dumps(json.loads(text), separators=(",", ":")),
    "one_line": lambda text: json.dumps(json.loads(text)),
    "escapes": lambda text: json.dumps(json.loads(text), indent=1, ensure_ascii=True),
    "odd_numbers": lambda text: text.replace('"nbformat": 4', '"x": 1.0E+2, "nbformat": 4'),
}


@pytest.mark.parametrize("name", FORMATS)
def test_format_is_kept(name: str) -> None:
    text = FORMATS[name](notebook("x = 'é'\nimport dgl.nn as nn\nnn", "nn.GATConv"))
    assert migrate_notebook(text).text == text.replace("import dgl.nn", "import dgl_flash.nn")


def test_source_may_be_one_string() -> None:
    content = json.loads(notebook("import dgl.nn as nn\nnn"))
    content["cells"][0]["source"] = "import dgl.nn as nn\nnn"
    text = json.dumps(content)
    assert migrate_notebook(text).text == text.replace("import dgl.nn", "import dgl_flash.nn")


def test_lines_that_are_added_look_like_the_others() -> None:
    new = migrate_notebook(notebook("import dgl\ndgl.nn.GATConv")).text
    lines = ["import dgl_flash  # before `import dgl`\n", "import dgl\n", "dgl_flash.nn.GATConv"]
    assert new == notebook("".join(lines))


MAGICS = [
    "%matplotlib inline\n!pip install dgl\nimport dgl.nn as x\nx?\n?x.GATConv\n",
    "%%time\nimport dgl.nn as x",
    "import dgl.nn as x\nfiles = !ls\nt = %timeit -o 1\nfor f in files:\n    !echo {f}\n",
    "!pip install \\\n    dgl \\\n    torch\nimport dgl.nn as x",
    "import dgl.nn as x\nif x:\n    %pip install a\nelse:\n\n    !ls\n  # end",
    "import dgl.nn as x\ny = (5\n     % 3)\nz = '''\n!ls\n'''\n",
    "import dgl.nn as x\nawait f(x)\nx.GATConv??",
]


@pytest.mark.parametrize("number", range(len(MAGICS)))
def test_magics_survive(number: int) -> None:
    result = migrate_notebook(notebook(MAGICS[number], "x.GATConv"))
    expected = MAGICS[number].replace("import dgl.nn", "import dgl_flash.nn")
    assert sources(result.text) == [expected, "x.GATConv"]
    assert result.findings == ()


def test_what_cannot_be_decided_is_listed_with_its_cell() -> None:
    text = notebook(
        "import dgl.nn",
        "x = 1\ndgl.nn.NoSuchThing",
        "%%bash\npython -c 'import dgl.nn'",
        "x = 1\n%time dgl.nn.GATConv",
        "def f(:\n    dgl.nn",
        "!ls\neval('dgl.nn')",
        "%%html\n<b>",
    )
    result = migrate_notebook(text)
    places = [finding.place("a") for finding in result.findings]
    assert places == ["a:cell 2:2", "a:cell 3:1", "a:cell 4:2", "a:cell 5:1", "a:cell 6:2"]
    texts = [finding.text for finding in result.findings]
    assert "NoSuchThing" in texts[0]
    assert "another language" in texts[1]
    assert "magic" in texts[2]
    assert "not the syntax" in texts[3]
    assert "eval()" in texts[4]
    # What is not read may use `dgl`.
    assert sources(result.text) == ["import dgl_flash.nn\nimport dgl", *sources(text)[1:]]


@pytest.mark.parametrize("cell", ["%time dgl.graph()", "if dgl.graph(:", "%%cython\ndgl.nn"])
def test_cells_that_are_not_read_may_use_dgl(cell: str) -> None:
    result = migrate_notebook(notebook("import dgl.nn", cell))
    assert sources(result.text) == ["import dgl_flash.nn\nimport dgl", cell]


def test_markdown_is_left() -> None:
    content = json.loads(notebook("a", "import dgl.nn as x"))
    content["cells"][0].update(cell_type="markdown", source=["import dgl.nn as x"])
    text = json.dumps(content)
    result = migrate_notebook(text)
    assert sources(result.text) == ["import dgl.nn as x", "import dgl_flash.nn as x"]
    assert result.parts[0].cell == 2


def test_another_kernel_is_left() -> None:
    text = notebook("import dgl.nn", language="julia")
    assert migrate_notebook(text).text == text


@pytest.mark.parametrize(
    "text",
    ["dgl", "[1, 'dgl']", '["dgl"]', '{"dgl": 1}', '{"cells": 3, "dgl": 1}', '{"cells": ["dgl"]}'],
)
def test_no_notebook(text: str) -> None:
    with pytest.raises(MigrationError, match="not a notebook of format 4"):
        migrate_notebook(text)
