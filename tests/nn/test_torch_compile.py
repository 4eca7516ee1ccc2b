"""A compiled model computes what the model computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dgl_flash.nn as dglnn
from dgl_flash.structure import graph as make_graph


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = dglnn.GATv2Conv(16, 8, 4)
        self.convolution = dglnn.GraphConv(32, 7)

    def forward(self, graph, feat):
        return self.convolution(graph, torch.relu(self.attention(graph, feat).flatten(1)))


@pytest.mark.filterwarnings("ignore")  # of torch's compiler, which differ from release to release
def test_a_compiled_model_equals_the_eager_one(device):
    torch.manual_seed(0)
    ends = torch.randint(0, 300, (2, 2000))
    graph = make_graph((ends[0], ends[1]), num_nodes=300).add_self_loop()
    model, feat = Model().to(device), torch.randn(300, 16, device=device)
    results = []
    for run in (model, torch.compile(model, backend="eager")):
        model.zero_grad()
        out = run(graph, feat)
        out.square().sum().backward()
        results.append([out.detach(), *(p.grad.clone() for p in model.parameters())])
    for compiled, eager in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=0, atol=0)
