"""GraphSAGE on sampled blocks, evaluated on the full graph."""

# ruff: noqa: B007, B905, UP031  (an old script is written in the way of its time)
import argparse
import json
import time

import dgl
import dgl.nn.pytorch as dglnn
import numpy as np
import torch as th
import torch.nn as nn
import torch.nn.functional as F


def load_data(n_nodes, n_classes, seed):
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, n_classes, n_nodes)
    order = np.argsort(labels, kind="stable")
    rank = np.empty(n_nodes, dtype=np.int64)
    rank[order] = np.arange(n_nodes)
    # Neighbours in the order of classes are mostly of the same class.
    src = np.repeat(np.arange(n_nodes), 8)
    step = rng.randint(-max(n_nodes // 40, 2), max(n_nodes // 40, 2), len(src))
    dst = order[np.clip(rank[src] + step, 0, n_nodes - 1)]
    g = dgl.graph((src, dst), num_nodes=n_nodes)
    feat = rng.normal(size=(n_nodes, 16)) + 1.0 * np.eye(16)[labels]
    g.ndata["feat"] = th.tensor(feat, dtype=th.float32)
    g.ndata["label"] = th.tensor(labels, dtype=th.int64)
    split = rng.permutation(n_nodes)
    return g, th.tensor(split[: n_nodes // 2]), th.tensor(split[n_nodes // 2 :])


class SAGE(nn.Module):
    def __init__(self, in_feats, n_hidden, n_classes, n_layers, activation, dropout):
        super().__init__()
        self.n_layers = n_layers
        self.layers = nn.ModuleList()
        sizes = [in_feats] + [n_hidden] * (n_layers - 1) + [n_classes]
        for i in range(n_layers):
            self.layers.append(dglnn.SAGEConv(sizes[i], sizes[i + 1], "mean"))
        self.activation = activation
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks, x):
        h = x
        for i, (layer, block) in enumerate(zip(self.layers, blocks)):
            h_dst = h[: block.num_dst_nodes()]
            h = layer(block, (h, h_dst))
            if i != len(self.layers) - 1:
                h = self.dropout(self.activation(h))
        return h

    def inference(self, g, x):
        """The whole graph at once."""
        for i, layer in enumerate(self.layers):
            x = layer(g, x)
            if i != len(self.layers) - 1:
                x = self.activation(x)
        return x


def run(args, device):
    g, train_nid, test_nid = load_data(args.nodes, 6, args.seed)
    g = g.to(device)
    train_nid = train_nid.to(device)
    fanouts = [int(fanout) for fanout in args.fan_out.split(",")]
    sampler = dgl.dataloading.NeighborSampler(fanouts)
    dataloader = dgl.dataloading.DataLoader(
        g,
        train_nid,
        sampler,
        device=device,
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=False,
        num_workers=args.num_workers,
    )
    model = SAGE(g.ndata["feat"].shape[1], args.hidden, 6, len(fanouts), F.relu, args.dropout)
    model = model.to(device)
    optimizer = th.optim.Adam(model.parameters(), lr=args.lr)

    losses = []
    tic = time.time()
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for step, (input_nodes, output_nodes, blocks) in enumerate(dataloader):
            x = blocks[0].srcdata["feat"]
            y = blocks[-1].dstdata["label"]
            loss = F.cross_entropy(model(blocks, x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(output_nodes)
        losses.append(total / len(train_nid))
        print("Epoch %d | Loss %.4f | %d steps" % (epoch, losses[-1], step + 1))
    seconds = (time.time() - tic) / args.epochs

    model.eval()
    with th.no_grad():
        pred = model.inference(g, g.ndata["feat"])
    test_nid = test_nid.to(device)
    hits = pred[test_nid].argmax(1) == g.ndata["label"][test_nid]
    return losses, hits.float().mean().item(), seconds


if __name__ == "__main__":
    argparser = argparse.ArgumentParser()
    default = th.device("cuda" if th.cuda.is_available() else "cpu")
    argparser.add_argument("--device", choices=["cpu", "cuda"], default=default.type)
    argparser.add_argument("--epochs", type=int, default=20)
    argparser.add_argument("--seed", type=int, default=0)
    argparser.add_argument("--nodes", type=int, default=1000)
    argparser.add_argument("--hidden", type=int, default=16)
    argparser.add_argument("--fan-out", type=str, default="5,10")
    argparser.add_argument("--batch-size", type=int, default=128)
    argparser.add_argument("--num-workers", type=int, default=0)
    argparser.add_argument("--dropout", type=float, default=0.0)
    argparser.add_argument("--lr", type=float, default=0.01)
    args = argparser.parse_args()
    np.random.seed(args.seed)
    dgl.seed(args.seed)
    th.manual_seed(args.seed)
    loss, accuracy, seconds = run(args, th.device(args.device))
    print(json.dumps({"loss": loss, "accuracy": accuracy, "seconds_per_epoch": seconds}))
