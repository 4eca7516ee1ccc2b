"""Relations in one structure: where their nodes lie, and that no edge is lost."""

from __future__ import annotations

import pytest
import torch

from dgl_flash.structure import GraphStructure
from dgl_flash.structure.joint import MOST_STEPS, ROWS, Joint, padded, step_of

COUNTS = {"a": 300, "b": 7, "c": 0}
ENDS = [("a", "b"), ("b", "a"), ("a", "a"), ("b", "b"), ("c", "b")]


def relation(src, dst, seed):
    generator = torch.Generator().manual_seed(seed)
    count = 40 if COUNTS[src] and COUNTS[dst] else 0
    ends = [
        torch.randint(max(COUNTS[kind], 1), (count,), generator=generator) for kind in (src, dst)
    ]
    return GraphStructure.from_coo(*ends, COUNTS[src], COUNTS[dst])


def test_every_edge_is_there_once():
    parts = [relation(src, dst, seed) for seed, (src, dst) in enumerate(ENDS)]
    joint = Joint(parts, [src for src, _ in ENDS], [dst for _, dst in ENDS])
    assert joint.src.order == [0, 2, 1, 3, 4]
    assert joint.dst.order == [0, 3, 4, 1, 2]
    assert joint.struct.num_src == joint.src.num_rows == 2 * 512 + 2 * 256
    assert joint.struct.num_dst == joint.dst.num_rows == 3 * 256 + 2 * 512
    found = set(zip(*[end.tolist() for end in joint.struct.edges()], strict=True))
    expected = {
        (u + joint.src.starts[nth], v + joint.dst.starts[nth])
        for nth, part in enumerate(parts)
        for u, v in zip(*[end.tolist() for end in part.edges()], strict=True)
    }
    assert found == expected
    assert joint.struct.num_edges == sum(part.num_edges for part in parts)


def test_no_block_sees_two_relations():
    parts = [relation(src, dst, 0) for src, dst in ENDS]
    joint = Joint(parts, [src for src, _ in ENDS], [dst for _, dst in ENDS])
    for side in (joint.src, joint.dst):
        assert all(start % ROWS == 0 for start in side.starts)
        for rows in (32, ROWS):
            assert sum(side.blocks(rows)) * rows == side.num_rows


@pytest.mark.parametrize("count", [0, 1, 255, 256, 8192, 8193, 20_000, 25_000, 10**6])
def test_rows_are_padded_to_a_few_steps(count):
    rows = padded(count)
    assert rows % ROWS == 0
    assert rows - count < max(ROWS, count / 8)
    if count > 0:
        assert step_of(rows) == step_of(count)
        assert 1 <= rows // step_of(rows) <= MOST_STEPS
