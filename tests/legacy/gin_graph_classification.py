"""GIN that tells rings, stars and random graphs apart."""

# ruff: noqa: B905, UP032  (an old script is written in the way of its time)
import argparse
import json
import time

import dgl
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from dgl.data import DGLDataset
from dgl.dataloading import GraphDataLoader
from dgl.nn.pytorch.conv import GINConv
from dgl.nn.pytorch.glob import SumPooling
from torch.utils.data.sampler import SubsetRandomSampler


class Shapes(DGLDataset):
    """Graphs of 8 to 16 nodes; their classes differ in the shape, not in the features."""

    def __init__(self, total_nodes, seed):
        self.total_nodes = total_nodes
        self.seed = seed
        super().__init__(name="shapes", save_dir="unused")

    def process(self):
        rng = np.random.RandomState(self.seed)
        self.graphs, labels = [], []
        for i in range(self.total_nodes // 12):
            n, label = rng.randint(8, 17), i % 3
            nodes = np.arange(n)
            if label == 0:
                src, dst = nodes, (nodes + 1) % n
            elif label == 1:
                src, dst = np.zeros(n - 1, dtype=np.int64), nodes[1:]
            else:
                src, dst = rng.randint(n, size=n), rng.randint(n, size=n)
            more = rng.randint(n, size=(2, 2))
            g = dgl.graph((np.append(src, more[0]), np.append(dst, more[1])), num_nodes=n)
            g = dgl.to_bidirected(g)
            g.ndata["attr"] = torch.tensor(rng.normal(size=(n, 4)) * 0.1 + 1, dtype=torch.float32)
            self.graphs.append(g)
            labels.append(label)
        self.label = torch.tensor(labels)

    def has_cache(self):
        return False

    def __getitem__(self, idx):
        return self.graphs[idx], self.label[idx]

    def __len__(self):
        return len(self.graphs)


class MLP(nn.Module):
    def __init__(self, input_dim, hidden_dim, output_dim):
        super().__init__()
        self.linear1 = nn.Linear(input_dim, hidden_dim, bias=False)
        self.linear2 = nn.Linear(hidden_dim, output_dim, bias=False)
        self.batch_norm = nn.BatchNorm1d(hidden_dim)

    def forward(self, x):
        return self.linear2(F.relu(self.batch_norm(self.linear1(x))))


class GIN(nn.Module):
    def __init__(self, input_dim, hidden_dim, output_dim, num_layers):
        super().__init__()
        self.ginlayers = nn.ModuleList()
        self.linear_prediction = nn.ModuleList([nn.Linear(input_dim, output_dim)])
        for layer in range(num_layers):
            mlp = MLP(input_dim if layer == 0 else hidden_dim, hidden_dim, hidden_dim)
            self.ginlayers.append(GINConv(mlp, learn_eps=True))
            self.linear_prediction.append(nn.Linear(hidden_dim, output_dim))
        self.mean_prediction = nn.Linear(hidden_dim, output_dim)
        self.pool = SumPooling()

    def forward(self, g, h):
        score = self.linear_prediction[0](self.pool(g, h) / 10)
        for layer, predict in zip(self.ginlayers, self.linear_prediction[1:]):
            h = F.relu(layer(g, h))
            score = score + predict(self.pool(g, h) / 10)
        with g.local_scope():
            g.ndata["h"] = h
            return score + self.mean_prediction(dgl.mean_nodes(g, "h"))


def evaluate(dataloader, device, model):
    model.eval()
    total, total_correct = 0, 0
    with torch.no_grad():
        for batched_graph, labels in dataloader:
            batched_graph = batched_graph.to(device)
            labels = labels.to(device)
            feat = batched_graph.ndata.pop("attr")
            total += len(labels)
            _, predicted = torch.max(model(batched_graph, feat), 1)
            total_correct += (predicted == labels).sum().item()
    return 1.0 * total_correct / total


def main(args):
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    dataset = Shapes(args.nodes, args.seed)
    split = np.random.RandomState(args.seed).permutation(len(dataset))
    cut = len(dataset) * 2 // 3
    options = dict(batch_size=args.batch_size, num_workers=args.num_workers)
    train_loader = GraphDataLoader(dataset, sampler=SubsetRandomSampler(split[:cut]), **options)
    test_loader = GraphDataLoader(dataset, sampler=SubsetRandomSampler(split[cut:]), **options)

    model = GIN(4, args.hidden, 3, num_layers=2).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    start = time.time()
    for epoch in range(args.epochs):
        model.train()
        total_loss = 0
        for batched_graph, labels in train_loader:
            batched_graph, labels = batched_graph.to(device), labels.to(device)
            logits = model(batched_graph, batched_graph.ndata["attr"])
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total_loss += loss.item()
        losses.append(total_loss / len(train_loader))
        print("Epoch {:05d} | Loss {:.4f}".format(epoch, losses[-1]))
    seconds = (time.time() - start) / args.epochs
    accuracy = evaluate(test_loader, device, model)
    print(json.dumps({"loss": losses, "accuracy": accuracy, "seconds_per_epoch": seconds}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="GIN")
    default = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default.type)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=2400)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.01)
    main(parser.parse_args())
