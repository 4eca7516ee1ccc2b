"""A heterogeneous graph transformer: one layer by hand on types, one HGTConv on the whole."""

# ruff: noqa: UP031  (an old script is written in the way of its time)
import argparse
import json
import math
import time

import dgl
import dgl.function as fn
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from dgl.nn.pytorch import HGTConv
from dgl.ops import edge_softmax


def make_graph(num_items, seed):
    """Users like items of their own kind, and tags describe items of one kind."""
    rng = np.random.RandomState(seed)
    kind = {
        "item": rng.randint(4, size=num_items),
        "tag": np.arange(max(num_items // 10, 8)) % 4,
        "user": np.arange(max(num_items // 2, 8)) % 4,
    }

    def edges(left, right, degree):
        count = degree * num_items
        u = rng.randint(len(kind[left]), size=count)
        v = rng.randint(len(kind[right]), size=count)
        keep = (kind[left][u] == kind[right][v]) | (rng.rand(count) < 0.1)
        return torch.tensor(u[keep]), torch.tensor(v[keep])

    likes, describes = edges("user", "item", 12), edges("tag", "item", 8)
    G = dgl.heterograph(
        {
            ("user", "likes", "item"): likes,
            ("item", "liked_by", "user"): (likes[1], likes[0]),
            ("tag", "describes", "item"): describes,
            ("item", "described_by", "tag"): (describes[1], describes[0]),
        },
        num_nodes_dict={ntype: len(kinds) for ntype, kinds in kind.items()},
    )
    for ntype in G.ntypes:
        inp = rng.normal(size=(G.num_nodes(ntype), 8)) + np.eye(8)[kind[ntype]] * 0.7
        G.nodes[ntype].data["inp"] = torch.tensor(inp, dtype=torch.float32)
    return G, torch.tensor(kind["item"])


class HGTLayer(nn.Module):
    def __init__(self, ntypes, etypes, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_k = dim // n_heads
        self.linears = nn.ModuleDict(
            {name: nn.ModuleDict({t: nn.Linear(dim, dim) for t in ntypes}) for name in "kqva"}
        )
        eye = torch.eye(self.d_k).repeat(n_heads, 1, 1)
        self.relation_att = nn.ParameterDict({e: nn.Parameter(eye.clone()) for e in etypes})
        self.relation_msg = nn.ParameterDict({e: nn.Parameter(eye.clone()) for e in etypes})
        self.relation_pri = nn.ParameterDict({e: nn.Parameter(torch.ones(n_heads)) for e in etypes})

    def project(self, name, ntype, h):
        return self.linears[name][ntype](h).view(-1, self.n_heads, self.d_k)

    def forward(self, G, h):
        with G.local_scope():
            funcs = {}
            for srctype, etype, dsttype in G.canonical_etypes:
                sub_graph = G[srctype, etype, dsttype]
                k = self.project("k", srctype, h[srctype])
                v = self.project("v", srctype, h[srctype])
                sub_graph.srcdata["k"] = torch.einsum("bij,ijk->bik", k, self.relation_att[etype])
                sub_graph.dstdata["q"] = self.project("q", dsttype, h[dsttype])
                v = torch.einsum("bij,ijk->bik", v, self.relation_msg[etype])
                sub_graph.srcdata["v_" + etype] = v
                sub_graph.apply_edges(fn.v_dot_u("q", "k", "t"))
                score = sub_graph.edata.pop("t").sum(-1) * self.relation_pri[etype]
                score = edge_softmax(sub_graph, score / math.sqrt(self.d_k), norm_by="dst")
                sub_graph.edata["t"] = score.unsqueeze(-1)
                funcs[etype] = (fn.u_mul_e("v_" + etype, "t", "m"), fn.sum("m", "t"))
            G.multi_update_all(funcs, cross_reducer="mean")
            new_h = {}
            for ntype in G.ntypes:
                t = G.nodes[ntype].data["t"].reshape(-1, self.n_heads * self.d_k)
                new_h[ntype] = self.linears["a"][ntype](t) + h[ntype]
            return new_h


class HGT(nn.Module):
    def __init__(self, G, n_inp, n_hid, n_out, n_heads):
        super().__init__()
        self.adapt = nn.ModuleDict({ntype: nn.Linear(n_inp, n_hid) for ntype in G.ntypes})
        self.first = HGTLayer(G.ntypes, G.etypes, n_hid, n_heads)
        sizes = (n_hid, n_hid // n_heads, n_heads, len(G.ntypes), len(G.etypes))
        self.second = HGTConv(*sizes, dropout=0.0, use_norm=True)
        self.out = nn.Linear(n_hid, n_out)

    def forward(self, G, g):
        h = {n: F.gelu(self.adapt[n](G.nodes[n].data["inp"])) for n in G.ntypes}
        h = self.first(G, h)
        h = torch.cat([h[n] for n in G.ntypes])
        return self.out(self.second(g, h, g.ndata[dgl.NTYPE], g.edata[dgl.ETYPE], presorted=False))


def main(args):
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    G, labels = make_graph(args.nodes, args.seed)
    g = dgl.to_homogeneous(G).to(device)
    G = G.to(device)
    labels = labels.to(device)
    items = g.ndata[dgl.NTYPE] == G.get_ntype_id("item")
    train = torch.arange(args.nodes).to(device) < args.nodes // 4

    model = HGT(G, 8, args.hidden, 4, args.heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    losses = []
    begin = time.time()
    for epoch in np.arange(args.epochs):
        logits = model(G, g)[items]
        loss = F.cross_entropy(logits[train], labels[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print("Epoch: %d Loss: %.4f" % (epoch, losses[-1]))
    seconds = (time.time() - begin) / args.epochs
    with torch.no_grad():
        pred = model(G, g)[items].argmax(1)
    acc = (pred[~train] == labels[~train]).float().mean().item()
    print(json.dumps({"loss": losses, "accuracy": acc, "seconds_per_epoch": seconds}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="HGT")
    default = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default.type)
    for option, value in (
        ("epochs", 20),
        ("seed", 0),
        ("nodes", 600),
        ("hidden", 16),
        ("heads", 2),
    ):
        parser.add_argument("--" + option, type=int, default=value)
    parser.add_argument("--lr", type=float, default=0.01)
    main(parser.parse_args())
