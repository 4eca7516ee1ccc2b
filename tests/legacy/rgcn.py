"""R-GCN three ways: HeteroGraphConv, a hand-written multi_update_all, and RelGraphConv."""

# ruff: noqa: B007, UP031  (an old script is written in the way of its time)
import argparse
import json
import time

import dgl
import dgl.function as fn
import dgl.nn.pytorch as dglnn
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from dgl.nn.pytorch.conv import RelGraphConv

CLASSES = 3


def make_heterograph(n, seed):
    """Papers have topics; authors write about one topic, venues accept one."""
    rng = np.random.RandomState(seed)
    n_author, n_venue = max(n // 3, 12), 12
    topic = rng.randint(CLASSES, size=n)
    author_topic = np.arange(n_author) % CLASSES
    venue_topic = np.arange(n_venue) % CLASSES

    def pairs(left, right, count):
        u, v = rng.randint(len(left), size=count), rng.randint(len(right), size=count)
        keep = (left[u] == right[v]) | (rng.rand(count) < 0.15)
        return u[keep], v[keep]

    writes = pairs(author_topic, topic, 6 * n)
    accepts = pairs(venue_topic, topic, 4 * n)
    cites = pairs(topic, topic, 6 * n)
    hg = dgl.heterograph(
        {
            ("author", "writes", "paper"): writes,
            ("paper", "written_by", "author"): writes[::-1],
            ("venue", "accepts", "paper"): accepts,
            ("paper", "appears_in", "venue"): accepts[::-1],
            ("paper", "cites", "paper"): cites,
        },
        num_nodes_dict={"author": n_author, "paper": n, "venue": n_venue},
    )
    for ntype in hg.ntypes:
        feat = rng.normal(size=(hg.num_nodes(ntype), 8))
        hg.nodes[ntype].data["feat"] = torch.tensor(feat, dtype=torch.float32)
    hg.nodes["paper"].data["feat"][:, :CLASSES] += torch.eye(CLASSES)[topic]
    return hg, torch.tensor(topic)


class HeteroRGCN(nn.Module):
    """One GraphConv a relation, then a layer of message functions."""

    def __init__(self, etypes, in_size, hidden, out_size):
        super().__init__()
        convs = {etype: dglnn.GraphConv(in_size, hidden, norm="right") for etype in etypes}
        self.conv = dglnn.HeteroGraphConv(convs, aggregate="sum")
        self.weight = nn.ModuleDict({etype: nn.Linear(hidden, out_size) for etype in etypes})

    def forward(self, hg, feat):
        h = {ntype: F.leaky_relu(x) for ntype, x in self.conv(hg, feat).items()}
        with hg.local_scope():
            funcs = {}
            for srctype, etype, dsttype in hg.canonical_etypes:
                hg.nodes[srctype].data["Wh_%s" % etype] = self.weight[etype](h[srctype])
                funcs[etype] = (fn.copy_u("Wh_%s" % etype, "m"), fn.mean("m", "h"))
            hg.multi_update_all(funcs, "sum")
            return hg.nodes["paper"].data["h"]


class HomoRGCN(nn.Module):
    """RelGraphConv on the homogeneous graph with types on its edges."""

    def __init__(self, in_size, hidden, out_size, num_rels):
        super().__init__()
        self.layer1 = RelGraphConv(in_size, hidden, num_rels, "basis", num_bases=3)
        self.layer2 = RelGraphConv(hidden, out_size, num_rels, "basis", num_bases=3)

    def forward(self, g, feat):
        h = F.relu(self.layer1(g, feat, g.edata[dgl.ETYPE], g.edata["norm"]))
        return self.layer2(g, h, g.edata[dgl.ETYPE], g.edata["norm"])


def main(args):
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    hg, labels = make_heterograph(args.nodes, args.seed)
    g = dgl.to_homogeneous(hg, ndata=["feat"])
    hg, g, labels = hg.to(device), g.to(device), labels.to(device)
    in_degree = g.in_degrees().float().clamp(min=1)
    g.ndata["scale"] = 1.0 / in_degree.unsqueeze(1)
    g.apply_edges(lambda edges: {"norm": edges.dst["scale"]})
    is_paper = g.ndata[dgl.NTYPE] == hg.get_ntype_id("paper")
    train = torch.arange(args.nodes, device=device) % 3 == 0

    hetero = HeteroRGCN(hg.etypes, 8, args.hidden, CLASSES).to(device)
    homo = HomoRGCN(8, args.hidden, CLASSES, len(hg.etypes)).to(device)
    params = list(hetero.parameters()) + list(homo.parameters())
    opt = torch.optim.Adam(params, lr=args.lr)

    def predict():
        return hetero(hg, hg.ndata["feat"]), homo(g, g.ndata["feat"])[is_paper]

    losses = []
    start = time.time()
    for epoch in range(args.epochs):
        loss = sum(F.cross_entropy(logits[train], labels[train]) for logits in predict())
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        print("Epoch %03d: loss %.4f" % (epoch, losses[-1]))
    seconds = (time.time() - start) / args.epochs
    with torch.no_grad():
        hits = [(x.argmax(1) == labels)[~train].float().mean().item() for x in predict()]
    print("accuracy of the two: %.4f %.4f" % tuple(hits))
    print(json.dumps({"loss": losses, "accuracy": min(hits), "seconds_per_epoch": seconds}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="RGCN")
    default = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default.type)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=600)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.02)
    main(parser.parse_args())
