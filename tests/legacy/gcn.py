"""Full-graph GCN on a planted partition."""

# ruff: noqa: UP008, UP032  (an old script is written in the way of its time)
import argparse
import json
import time

import dgl
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from dgl.nn.pytorch import GraphConv


def planted_partition(num_nodes, num_classes, seed):
    """A graph whose edges mostly stay inside of a class, with noisy features."""
    rng = np.random.RandomState(seed)
    labels = rng.randint(num_classes, size=num_nodes)
    src = rng.randint(num_nodes, size=6 * num_nodes)
    dst = rng.randint(num_nodes, size=6 * num_nodes)
    keep = (labels[src] == labels[dst]) | (rng.rand(len(src)) < 0.1)
    g = dgl.graph((src[keep], dst[keep]), num_nodes=num_nodes)
    g = dgl.to_bidirected(g)
    feat = np.eye(num_classes, 16)[labels] + rng.normal(size=(num_nodes, 16))
    train = rng.rand(num_nodes) < 0.3
    g.ndata["feat"] = torch.tensor(feat, dtype=torch.float32)
    g.ndata["label"] = torch.tensor(labels)
    g.ndata["train_mask"] = torch.tensor(train)
    g.ndata["test_mask"] = torch.tensor(~train)
    return g


class GCN(nn.Module):
    def __init__(self, in_feats, n_hidden, n_classes, n_layers, activation, dropout):
        super(GCN, self).__init__()
        self.layers = nn.ModuleList()
        self.layers.append(GraphConv(in_feats, n_hidden, activation=activation))
        for _ in range(n_layers - 1):
            self.layers.append(GraphConv(n_hidden, n_hidden, activation=activation))
        self.layers.append(GraphConv(n_hidden, n_classes))
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, g, features):
        h = features
        for i, layer in enumerate(self.layers):
            if i != 0:
                h = self.dropout(h)
            h = layer(g, h)
        return h


def evaluate(model, g, features, labels, mask):
    model.eval()
    with torch.no_grad():
        logits = model(g, features)[mask]
    _, indices = torch.max(logits, dim=1)
    correct = torch.sum(indices == labels[mask])
    return correct.item() * 1.0 / len(indices)


def main(args):
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    g = planted_partition(args.nodes, 4, args.seed)
    g = dgl.remove_self_loop(g)
    g = dgl.add_self_loop(g)
    g = g.int().to(device)
    features = g.ndata.pop("feat")
    labels = g.ndata.pop("label")
    train_mask, test_mask = g.ndata["train_mask"], g.ndata["test_mask"]

    model = GCN(features.shape[1], args.hidden, 4, args.layers, F.relu, args.dropout)
    model = model.to(g.device)
    loss_fcn = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)

    losses = []
    start = time.time()
    for epoch in range(args.epochs):
        model.train()
        loss = loss_fcn(model(g, features)[train_mask], labels[train_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print("Epoch {:05d} | Loss {:.4f}".format(epoch, losses[-1]))
    seconds = (time.time() - start) / args.epochs
    acc = evaluate(model, g, features, labels, test_mask)
    print(json.dumps({"loss": losses, "accuracy": acc, "seconds_per_epoch": seconds}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="GCN")
    default = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default.type)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lr", type=float, default=0.02)
    main(parser.parse_args())
