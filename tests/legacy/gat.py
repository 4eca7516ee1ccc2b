"""Full-graph GAT with several heads, and label smoothing by a hand-written propagation."""

# ruff: noqa: UP032  (an old script is written in the way of its time)
import argparse
import json
import time

import dgl
import dgl.function as fn
import dgl.nn as dglnn
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from dgl.nn.functional import edge_softmax


def make_graph(num_nodes, num_classes, seed):
    rng = np.random.RandomState(seed)
    labels = np.arange(num_nodes) % num_classes
    rng.shuffle(labels)
    src, dst = [], []
    for c in range(num_classes):
        members = np.where(labels == c)[0]
        src.append(rng.choice(members, 4 * len(members)))
        dst.append(rng.choice(members, 4 * len(members)))
    src.append(rng.randint(num_nodes, size=num_nodes))
    dst.append(rng.randint(num_nodes, size=num_nodes))
    g = dgl.graph((np.concatenate(src), np.concatenate(dst)), num_nodes=num_nodes)
    feat = rng.normal(size=(num_nodes, 12))
    feat[np.arange(num_nodes), labels] += 1.0
    train_mask = np.zeros(num_nodes, dtype=bool)
    train_mask[: num_nodes // 3] = True
    return g, torch.FloatTensor(feat), torch.LongTensor(labels), torch.BoolTensor(train_mask)


class GAT(nn.Module):
    def __init__(self, in_size, hid_size, out_size, heads):
        super().__init__()
        self.gat_layers = nn.ModuleList()
        self.gat_layers.append(dglnn.GATConv(in_size, hid_size, heads[0], activation=F.elu))
        self.gat_layers.append(
            dglnn.GATConv(hid_size * heads[0], out_size, heads[1], residual=True)
        )

    def forward(self, g, inputs):
        h = inputs
        for i, layer in enumerate(self.gat_layers):
            h = layer(g, h)
            if i == len(self.gat_layers) - 1:
                h = h.mean(1)
            else:
                h = h.flatten(1)
        return h


def smooth(g, logits, hops):
    """Average predictions over neighbours, weighted by how much they agree."""
    with g.local_scope():
        g.ndata["p"] = torch.softmax(logits, dim=1)
        for _ in range(hops):
            g.apply_edges(fn.u_dot_v("p", "p", "s"))
            g.edata["w"] = edge_softmax(g, g.edata["s"])
            g.update_all(fn.u_mul_e("p", "w", "m"), fn.sum("m", "p"))
        return g.ndata["p"]


def main():
    parser = argparse.ArgumentParser(description="GAT")
    default = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default.type)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--hidden", type=int, default=8)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    g, features, labels, train_mask = make_graph(args.nodes, 5, args.seed)
    g = dgl.add_self_loop(g)
    g = g.to(device)
    g.ndata["feat"] = features.to(device)
    g.ndata["label"] = labels.to(device)
    g.ndata["train"] = train_mask.to(device)
    features = g.ndata.pop("feat")
    labels = g.ndata.pop("label")
    train_mask = g.ndata.pop("train")

    model = GAT(features.shape[1], args.hidden, 5, heads=[args.heads, 1]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    losses = []
    t0 = time.time()
    for epoch in range(args.epochs):
        model.train()
        logits = model(g, features)
        loss = F.cross_entropy(logits[train_mask], labels[train_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print("Epoch {:05d} | Loss {:.4f}".format(epoch, loss.item()))
    per_epoch = (time.time() - t0) / args.epochs

    model.eval()
    with torch.no_grad():
        predicted = smooth(g, model(g, features), hops=2).argmax(dim=1)
    acc = (predicted == labels)[~train_mask].float().mean().item()
    print(json.dumps({"loss": losses, "accuracy": acc, "seconds_per_epoch": per_epoch}))


if __name__ == "__main__":
    main()
