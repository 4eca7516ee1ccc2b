"""Streams that share cached tensors: who waits for whom, first with stand-ins, then on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dgl_flash.structure import fence as fence_module
from dgl_flash.structure import structure
from dgl_flash.structure.fence import Fence, copy_to_device
from tests.graphs import power_law
from tests.sync import no_device_sync


class FakeStream:
    def __init__(self) -> None:
        self.waits: list[Any] = []

    def wait_event(self, event: Any) -> None:
        self.waits.append(event)


class FakeEvent:
    def record(self, stream: FakeStream) -> None:
        self.recorded_on = stream


class FakeTensor:
    def __init__(self) -> None:
        self.streams: list[FakeStream] = []

    def record_stream(self, stream: FakeStream) -> None:
        self.streams.append(stream)


def test_only_another_stream_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"stream": FakeStream(), "capturing": False}
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: now["stream"])
    monkeypatch.setattr(fence_module, "_current_stream", lambda index, pointer: now["stream"])
    monkeypatch.setattr(fence_module, "current_stream_pointer", lambda index: id(now["stream"]))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: now["capturing"])
    builder, tensor = now["stream"], FakeTensor()
    fence = Fence(torch.device("cuda", 0))
    fence.wait([tensor])
    assert builder.waits == tensor.streams == []

    reader = now["stream"] = FakeStream()
    now["capturing"] = True
    fence.wait([tensor])
    assert reader.waits == tensor.streams == []

    now["capturing"] = False
    fence.wait([tensor])
    assert [event.recorded_on for event in reader.waits] == [builder]
    assert tensor.streams == [reader]

    fence.mark()  # the reader built something in its turn
    assert reader.waits[0].recorded_on is reader
    fence.wait([tensor])
    assert len(reader.waits) == 1
    now["stream"] = builder
    fence.wait([tensor])
    assert len(builder.waits) == 1


def test_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless something was built since, or it has waited for a part only."""
    now = {"stream": FakeStream()}
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: now["stream"])
    monkeypatch.setattr(fence_module, "_current_stream", lambda index, pointer: now["stream"])
    monkeypatch.setattr(fence_module, "current_stream_pointer", lambda index: id(now["stream"]))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    builder, tensor, other = now["stream"], FakeTensor(), FakeTensor()
    fence = Fence(torch.device("cuda", 0))
    reader = now["stream"] = FakeStream()
    fence.wait([tensor], are_all=False)
    for _ in range(3):
        fence.wait([tensor, other])
    assert len(reader.waits) == 2
    assert other.streams == [reader]
    now["stream"] = builder
    fence.mark()
    now["stream"] = reader
    fence.wait([tensor, other])
    assert len(reader.waits) == 3


def test_a_copy_to_the_host_is_complete() -> None:
    tensor = torch.arange(5)
    assert copy_to_device(tensor, torch.device("cpu")) is tensor
    assert copy_to_device(tensor, torch.device("meta")).device.type == "meta"


@pytest.mark.gpu
def test_a_structure_built_late_in_one_stream_is_read_right_in_another() -> None:
    graph = power_law()
    expected = structure(graph)
    for _ in range(3):
        graph._graph._cache.clear()
        building, reading = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(building):
            torch.cuda._sleep(50_000_000)  # all that follows in this stream comes late
            found = structure(graph, "cuda")
            found.out_adj  # noqa: B018
            found.degree_scale("src", -0.5, torch.float32)
        with torch.cuda.stream(reading):
            indices = found.out_adj.indices.clone()
            scale = found.degree_scale("src", -0.5, torch.float32).clone()
        reading.synchronize()
        assert torch.equal(indices.cpu(), expected.out_adj.indices)
        torch.testing.assert_close(scale.cpu(), expected.degree_scale("src", -0.5, torch.float32))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [10, 50_000, 3_000_000])
def test_a_source_may_change_after_the_copy(size: int) -> None:
    for pinned in (False, True):
        source = torch.arange(size)
        source = source.pin_memory() if pinned else source
        torch.cuda._sleep(50_000_000)  # the copy comes late
        copied = copy_to_device(source, torch.device("cuda", 0))
        source.zero_()
        assert torch.equal(copied.cpu(), torch.arange(size))


@pytest.mark.gpu
def test_building_does_not_make_the_host_wait() -> None:
    graph = power_law()
    with no_device_sync():
        found = structure(graph, "cuda")
        found.out_adj.degrees()
        assert found.in_adj.plan(32) is not None
    assert found.out_adj.num_edges == graph.num_edges()
