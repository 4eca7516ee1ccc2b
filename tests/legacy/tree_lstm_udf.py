"""A Tree-LSTM of user-defined functions that learns to evaluate logical expressions."""

# ruff: noqa: UP008, UP032  (an old script is written in the way of its time)
import argparse
import json
import time

import dgl
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ZERO, ONE, AND, OR = range(4)


def make_tree(rng, depth):
    """A random expression; edges run from arguments to their operator."""
    src, dst, tokens, values = [], [], [], []

    def grow(level):
        node = len(tokens)
        tokens.append(None)
        values.append(None)
        if level == depth or (level > 1 and rng.rand() < 0.3):
            tokens[node] = rng.randint(2)
            values[node] = tokens[node]
            return node
        arguments = [grow(level + 1) for _ in range(rng.randint(2, 4))]
        src.extend(arguments)
        dst.extend([node] * len(arguments))
        tokens[node] = AND if rng.rand() < 0.5 else OR
        inputs = [values[argument] for argument in arguments]
        values[node] = min(inputs) if tokens[node] == AND else max(inputs)
        return node

    grow(0)
    g = dgl.graph((src, dst), num_nodes=len(tokens))
    g.ndata["x"] = torch.tensor(tokens)
    g.ndata["y"] = torch.tensor(values)
    return g


class TreeLSTMCell(nn.Module):
    def __init__(self, x_size, h_size):
        super(TreeLSTMCell, self).__init__()
        self.W_iou = nn.Linear(x_size, 3 * h_size)
        self.U_iou = nn.Linear(h_size, 3 * h_size, bias=False)
        self.W_f = nn.Linear(x_size, h_size)
        self.U_f = nn.Linear(h_size, h_size, bias=False)

    def message_func(self, edges):
        return {"h": edges.src["h"], "c": edges.src["c"], "w": edges.dst["wf"]}

    def reduce_func(self, nodes):
        h_tild = torch.sum(nodes.mailbox["h"], 1)
        f = torch.sigmoid(nodes.mailbox["w"] + self.U_f(nodes.mailbox["h"]))
        c = torch.sum(f * nodes.mailbox["c"], 1)
        return {"iou": nodes.data["iou"] + self.U_iou(h_tild), "c": c}

    def apply_node_func(self, nodes):
        i, o, u = torch.chunk(nodes.data["iou"], 3, 1)
        c = torch.sigmoid(i) * torch.tanh(u) + nodes.data["c"]
        return {"h": torch.sigmoid(o) * torch.tanh(c), "c": c}


class TreeLSTM(nn.Module):
    def __init__(self, x_size, h_size):
        super(TreeLSTM, self).__init__()
        self.h_size = h_size
        self.embedding = nn.Embedding(4, x_size)
        self.cell = TreeLSTMCell(x_size, h_size)
        self.linear = nn.Linear(h_size, 2)

    def forward(self, g, by_generator=False):
        cell = self.cell
        with g.local_scope():
            embeds = self.embedding(g.ndata["x"])
            g.ndata["iou"] = cell.W_iou(embeds)
            g.ndata["wf"] = cell.W_f(embeds)
            g.ndata["h"] = torch.zeros((g.num_nodes(), self.h_size)).to(g.device)
            g.ndata["c"] = torch.zeros((g.num_nodes(), self.h_size)).to(g.device)
            functions = (cell.message_func, cell.reduce_func)
            if by_generator:
                frontiers = dgl.topological_nodes_generator(g)
                frontiers = [nodes.to(g.device) for nodes in frontiers]
                dgl.prop_nodes(g, frontiers, *functions, apply_node_func=cell.apply_node_func)
            else:
                dgl.prop_nodes_topo(g, *functions, apply_node_func=cell.apply_node_func)
            return self.linear(g.ndata.pop("h"))


def main(args):
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    rng = np.random.RandomState(args.seed)
    trees, nodes = [], 0
    while nodes < args.nodes:
        trees.append(make_tree(rng, depth=3))
        nodes += trees[-1].num_nodes()
    cut = len(trees) * 2 // 3
    test = dgl.batch(trees[cut:]).to(device)

    model = TreeLSTM(args.hidden, args.hidden).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    t0 = time.time()
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for first in range(0, cut, args.batch_size):
            batch = dgl.batch(trees[first : min(first + args.batch_size, cut)]).to(device)
            logp = F.log_softmax(model(batch), 1)
            loss = F.nll_loss(logp, batch.ndata["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.batch_size
        losses.append(total / cut)
        print("Epoch {:05d} | Loss {:.4f}".format(epoch, losses[-1]))
    seconds = (time.time() - t0) / args.epochs

    model.eval()
    with torch.no_grad():
        logits = model(test, by_generator=True)
    inner = test.in_degrees() > 0
    acc = (logits.argmax(1) == test.ndata["y"])[inner].float().mean().item()
    print(json.dumps({"loss": losses, "accuracy": acc, "seconds_per_epoch": seconds}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Tree-LSTM")
    default = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default.type)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.02)
    main(parser.parse_args())
