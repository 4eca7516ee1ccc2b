"""Link prediction: a GraphSAGE encoder on blocks, edges scored by dot products."""

# ruff: noqa: B007, UP008, UP032  (an old script is written in the way of its time)
import argparse
import json
import time

import dgl
import dgl.function as fn
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from dgl.dataloading import DataLoader, NeighborSampler, as_edge_prediction_sampler
from dgl.dataloading.negative_sampler import Uniform
from dgl.nn import SAGEConv


def communities(num_nodes, seed):
    """A graph of dense groups; its features tell the group, with noise."""
    rng = np.random.RandomState(seed)
    group = rng.randint(8, size=num_nodes)
    u = rng.randint(num_nodes, size=40 * num_nodes)
    v = rng.randint(num_nodes, size=40 * num_nodes)
    keep = (group[u] == group[v]) & (u != v)
    g = dgl.graph((u[keep], v[keep]), num_nodes=num_nodes)
    feat = rng.normal(size=(num_nodes, 16)) * 0.7 + np.eye(16)[group]
    g.ndata["feat"] = torch.tensor(feat, dtype=torch.float32)
    return g


class GraphSAGE(nn.Module):
    def __init__(self, in_feats, h_feats):
        super(GraphSAGE, self).__init__()
        self.conv1 = SAGEConv(in_feats, h_feats, "mean")
        self.conv2 = SAGEConv(h_feats, h_feats, "mean")

    def forward(self, blocks, x):
        h = F.relu(self.conv1(blocks[0], x))
        return self.conv2(blocks[1], h)


class DotPredictor(nn.Module):
    def forward(self, g, h):
        with g.local_scope():
            g.ndata["h"] = h
            g.apply_edges(fn.u_dot_v("h", "h", "score"))
            return g.edata["score"][:, 0]


def compute_loss(pos_score, neg_score):
    scores = torch.cat([pos_score, neg_score])
    labels = torch.cat([torch.ones_like(pos_score), torch.zeros_like(neg_score)])
    return F.binary_cross_entropy_with_logits(scores, labels)


def compute_auc(pos_score, neg_score):
    """How often an edge scores above a pair that is none; a tie counts half."""
    pos, neg = pos_score.cpu().numpy(), np.sort(neg_score.cpu().numpy())
    below = np.searchsorted(neg, pos, side="left")
    not_above = np.searchsorted(neg, pos, side="right")
    return float((below + not_above).mean() / (2 * len(neg)))


def main(args):
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    dgl.seed(args.seed)
    device = torch.device(args.device)
    full = communities(args.nodes, args.seed)

    # A tenth of the edges is held back, with as many random pairs.
    eids = np.random.RandomState(args.seed).permutation(full.num_edges())
    held_back = eids[: len(eids) // 10]
    u, v = full.edges()
    test_pos_g = dgl.graph((u[held_back], v[held_back]), num_nodes=full.num_nodes())
    test_neg_g = dgl.graph(Uniform(1)(full, torch.tensor(held_back)), num_nodes=full.num_nodes())
    g = dgl.remove_edges(full, torch.tensor(held_back))

    g = g.to(device)
    seeds = torch.arange(g.num_edges()).to(device)
    sampler = as_edge_prediction_sampler(
        NeighborSampler([5, 5]), exclude="self", negative_sampler=Uniform(args.negatives)
    )
    dataloader = DataLoader(
        g, seeds, sampler, device=device, batch_size=args.batch_size, shuffle=True
    )
    model = GraphSAGE(g.ndata["feat"].shape[1], args.hidden).to(device)
    pred = DotPredictor()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    losses = []
    start = time.time()
    for epoch in range(args.epochs):
        total = 0.0
        for it, (input_nodes, pair_graph, neg_graph, blocks) in enumerate(dataloader):
            h = model(blocks, blocks[0].srcdata["feat"])
            loss = compute_loss(pred(pair_graph, h), pred(neg_graph, h))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / (it + 1))
        print("In epoch {}, loss: {:.4f}".format(epoch, losses[-1]))
    seconds = (time.time() - start) / args.epochs

    test_pos_g, test_neg_g = test_pos_g.to(device), test_neg_g.to(device)
    with torch.no_grad():
        h = model([g, g], g.ndata["feat"])
        auc = compute_auc(pred(test_pos_g, h), pred(test_neg_g, h))
    print(json.dumps({"loss": losses, "accuracy": auc, "seconds_per_epoch": seconds}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Link prediction")
    default = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default.type)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=600)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--negatives", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.01)
    main(parser.parse_args())
