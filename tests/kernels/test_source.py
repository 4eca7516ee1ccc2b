"""Sources are found, pasted together once, and cut to one entry point without moving a line."""

from __future__ import annotations

import re

import pytest
import torch

from dgl_flash.kernels.jit import KernelKey, _signatures
from dgl_flash.kernels.source import load_entry, load_source, source_root

FILES = sorted(path.name for path in source_root().glob("*.cu"))


@pytest.mark.parametrize("name", FILES)
def test_no_include_is_left_and_each_file_comes_once(name):
    text = load_source(name)
    assert "#include" not in text
    starts = re.findall(r'^#line 1 "([^"]+)"$', text, re.MULTILINE)
    assert starts[0] == name
    assert len(starts) == len(set(starts))


@pytest.mark.parametrize("name", FILES)
def test_line_directives_point_at_the_line(name):
    lines = load_source(name).splitlines()
    original = {
        path.relative_to(source_root()).as_posix(): path.read_text().splitlines()
                for path in source_root().rglob("*.cu*")}  # fmt: skip
    file, number = "", 0
    for line in lines:
        directive = re.match(r'^#line (\d+) "([^"]+)"$', line)
        if directive:
            number, file = int(directive[1]), directive[2]
            continue
        expected = original[file][number - 1]
        assert line in (expected, "") and (line or expected.strip() in ("", "#pragma once"))
        number += 1


@pytest.mark.parametrize("name", FILES)
def test_one_entry_is_kept_and_no_line_moves(name):
    whole = load_source(name).splitlines()
    for entry in _signatures(name):
        cut = load_entry(name, entry).splitlines()
        assert len(cut) == len(whole)
        assert all(line in ("", other) for line, other in zip(cut, whole, strict=True))
        assert sum('extern "C"' in line for line in cut) == 1


def test_signatures_name_the_type_of_every_scalar():
    key = KernelKey("gatv2.cu", "gatv2_forward", torch.float64, torch.int64, ())
    kinds = key.parameters()
    assert tuple(kinds.values())[:4] == ("pointer", "pointer", "pointer", "double")
    sizes = ("drop_below", "num_rows", "num_chunks", "chunk_size", "rows_per_slot")
    assert [kinds[name] for name in sizes] == ["int64_t"] * 5
    assert (kinds["keep_scale"], kinds["indptr"]) == ("double", "pointer")
    single = KernelKey("gatv2.cu", "gatv2_forward", torch.bfloat16, torch.int32, ())
    assert single.parameters()["negative_slope"] == "float"


def test_the_prelude_names_types_and_constants():
    key = KernelKey("merge.cu", "merge_sum", torch.float16, torch.int64, (("H", 3), ("D", 7)))
    text = key.source()
    assert "using scalar_t = half_t;" in text
    assert "using acc_t = float;" in text
    assert "using index_t = long long;" in text
    assert "constexpr int D = 7;" in text


def test_a_key_is_hashable_and_equal_by_value():
    one = KernelKey("merge.cu", "merge_sum", torch.float16, torch.int64, (("H", 3), ("D", 7)))
    two = KernelKey("merge.cu", "merge_sum", torch.float16, torch.int64, (("H", 3), ("D", 7)))
    assert len({one, two}) == 1
