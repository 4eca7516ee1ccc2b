"""DeepWalk and MetaPath2Vec draw, walk and lose as DGL's do."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
from functools import partial

import dgl_flash
import dgl_flash.nn as ours

# isort: split
import dgl
import dgl.nn as theirs
import pytest
import torch
from torch.utils.data import DataLoader

from dgl_flash.nn import skipgrams
from tests.graphs import random_graph
from tests.nn.common import every_idtype, raised

LIBRARIES = (ours, theirs)


def seed(value=3):
    random.seed(value)
    dgl.seed(value)
    torch.manual_seed(value)


def loops(num_nodes=30, num_edges=150):
    return dgl.add_self_loop(random_graph(num_nodes, num_edges, seed=2))


def shops(idtype=torch.int64, ended=False):
    """Users, companies and products; every node has an edge of each type that leaves its type."""
    sizes = {"user": 12, "company": 7, "product": 9}
    relations = {"uc": ("user", "company"), "cp": ("company", "product")}
    relations |= {"cu": ("company", "user"), "pc": ("product", "company")}
    draws, edges = torch.Generator().manual_seed(1), {}
    for name, (src, dst) in relations.items():
        more = torch.randint(0, sizes[src], (20,), generator=draws)
        heads = torch.cat([torch.arange(sizes[src]), more])
        tails = torch.randint(0, sizes[dst], heads.shape, generator=draws)
        edges[src, name, dst] = (heads, tails)
    if ended:
        heads, tails = edges["company", "cu", "user"]
        edges["company", "cu", "user"] = (heads[heads < 3], tails[heads < 3])
    return dgl.heterograph(edges, num_nodes_dict=sizes, idtype=idtype)


def randomise(model):
    """Contexts start at 0, which would hide most of the loss; some products are cut."""
    with torch.no_grad():
        for table in (model.node_embed, model.context_embed):
            table.weight.normal_(0, 1.5)


def twins(name, *args, **kwargs):
    models = []
    for library in LIBRARIES:
        seed()
        models.append(getattr(library, name)(*args, **kwargs))
        randomise(models[-1])
    return models


def loss_and_grads(model, *batch):
    model.zero_grad(set_to_none=True)
    seed(5)
    loss = model(*batch)
    loss.backward()
    grads = [model.node_embed.weight.grad, model.context_embed.weight.grad]
    return [loss.detach(), *(grad.to_dense() for grad in grads)], [g.is_sparse for g in grads]


def assert_same_step(models, batch, device):
    mine, other = models
    (found, are_sparse) = loss_and_grads(mine.to(device), *(ids.to(device) for ids in batch))
    (expected, like_dgl) = loss_and_grads(other, *batch)
    assert are_sparse == like_dgl
    for value, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(value.cpu(), wanted, rtol=1e-4, atol=1e-5)


WALKS = [
    {},
    {"fast_neg": False},
    {"walk_length": 4, "window_size": 3, "sparse": False},
    {"walk_length": 6, "window_size": 1, "negative_size": 1, "neg_weight": 0.3},
    {"walk_length": 2, "window_size": 1, "fast_neg": False, "negative_size": 3},
]
every_walk = pytest.mark.parametrize("options", WALKS, ids=str)


@every_walk
@every_idtype
def test_deep_walk(options, idtype, device):
    graph = loops().int() if idtype == torch.int32 else loops()
    models = twins("DeepWalk", graph, 8, **options)
    samples = []
    for model in models:
        seed()
        samples.append(model.sample(torch.arange(9, dtype=idtype)))
    assert torch.equal(*samples)
    assert samples[0].dtype == idtype
    assert_same_step(models, samples[:1], device)
    for key in ("idx_list_src", "idx_list_dst", *(["neg_prob"] if "fast_neg" in options else [])):
        assert torch.equal(*(getattr(model, key) for model in models)), key


@pytest.mark.parametrize("fast_neg", [True, False])
def test_deep_walk_trains_along_dgls(fast_neg):
    """Through a data loader, with the optimiser for sparse gradients."""
    losses = []
    for library in LIBRARIES:
        seed()
        model = library.DeepWalk(loops(), 8, 10, 2, fast_neg=fast_neg)
        loader = DataLoader(torch.arange(30), 8, shuffle=True, collate_fn=model.sample)
        optimiser = torch.optim.SparseAdam(list(model.parameters()), lr=0.1)
        losses.append([])
        for batch in itertools.chain(*(loader for _ in range(4))):
            loss = model(batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.parametrize("fast_neg", [True, False])
def test_walks_on_the_cpu_meet_embeddings_on_the_device(fast_neg, device):
    graph = loops()
    model = twins("DeepWalk", graph, 8, fast_neg=fast_neg)[0]
    walks = model.sample(torch.arange(9))
    expected, _ = loss_and_grads(model, walks)
    model = model.to(device)
    assert torch.equal(model.sample(torch.arange(9).to(device))[:, 0], torch.arange(9))
    for given in (walks, walks.to(device)):
        found, _ = loss_and_grads(model, given)
        for value, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(value.cpu(), wanted, rtol=1e-4, atol=1e-5)


def test_a_batch_keeps_no_row_for_each_pair():
    """Neither for the positive nor for the negative pairs."""
    model = ours.DeepWalk(loops(), 16, 20, 4)
    walks, sizes = model.sample(torch.arange(30)), []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda saved: sizes.append(saved.numel()) or saved, lambda saved: saved
    ):
        model(walks)
    num_pairs = 30 * len(model.idx_list_src) * 6
    assert max(sizes) <= num_pairs


def test_deep_walk_on_our_own_graph():
    """Everything but the walks."""
    graph = loops()
    own = dgl_flash.graph(graph.edges(), num_nodes=30)
    walks = ours.DeepWalk(graph, 8, 5, 2).sample(torch.arange(9))
    losses = []
    for given in (graph, own):
        seed()
        model = ours.DeepWalk(given, 8, 5, 2)
        randomise(model)
        losses.append(model(walks))
    assert torch.equal(*losses)
    error = raised(partial(model.sample, torch.arange(9)))
    assert type(error) is TypeError
    assert "expected a DGLGraph" in str(error)


def test_walks_that_ended():
    graph = dgl.graph(([0, 1], [1, 2]))
    errors = []
    for model in twins("DeepWalk", graph, 4, 5, 2):
        walks = model.sample(torch.arange(3))
        assert walks[2].tolist() == [2, -1, -1, -1, -1]
        errors.append(raised(partial(model, walks)))
    assert [type(error) for error in errors] == [IndexError, IndexError]
    assert "add_self_loop" in str(errors[0])


@pytest.mark.parametrize("shape", [(3, 4), (3, 6), (5,), (3, 5, 1)], ids=str)
def test_wrong_walks(shape):
    """DGL computes with some of them, from places of other walks."""
    error = raised(partial(ours.DeepWalk(loops(), 4, 5, 2), torch.zeros(shape).long()))
    assert type(error) is ValueError
    assert str(error).startswith("DeepWalk: expected `batch_walk` of shape (B, 5), got")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("DeepWalk", (loops(), 8, 5, 5)),
        ("MetaPath2Vec", (shops(), ["uc", "cu"], 4)),
        ("MetaPath2Vec", (shops(), ["uc", "nothing"], 1)),
    ],
)
def test_wrong_options(name, args):
    mine, other = (raised(partial(getattr(lib, name), *args)) for lib in LIBRARIES)
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("ids", [torch.arange(3), [0, 50]], ids=str)
def test_wrong_starts(ids):
    calls = [partial(model.sample, ids) for model in twins("DeepWalk", loops().int(), 4, 5, 2)]
    mine, other = (raised(call) for call in calls)
    assert type(mine) is type(other) is dgl.DGLError


PATHS = [
    (["uc", "cu"], 1, {}),
    (["uc", "cu"], 3, {"negative_size": 2}),
    (["uc", "cp", "pc", "cu", "uc"], 2, {"sparse": False, "emb_dim": 5}),
    (["cp", "pc"], 2, {}),
    ([("user", "uc", "company")], 1, {}),
]
every_path = pytest.mark.parametrize(("path", "window", "options"), PATHS)


@every_path
@every_idtype
def test_meta_path(path, window, options, idtype, device):
    graph = shops(idtype)
    models = twins("MetaPath2Vec", graph, path, window, **options)
    mine, other = models
    assert torch.equal(mine.neg_prob, other.neg_prob)
    assert mine.node_metapath == other.node_metapath
    assert mine.local_to_global_nid == other.local_to_global_nid
    assert mine.hg is graph
    samples = []
    for model in models:
        seed()
        samples.append(model.sample(torch.arange(7, dtype=idtype)))
    for found, expected in zip(*samples, strict=True):
        assert torch.equal(found, expected)
        assert found.dtype == torch.int64
    assert_same_step(models, samples[0], device)


def test_meta_path_trains_along_dgls():
    losses = []
    for library in LIBRARIES:
        seed()
        model = library.MetaPath2Vec(shops(), ["uc", "cu"], 1, 8)
        loader = DataLoader(torch.arange(12), 4, shuffle=True, collate_fn=model.sample)
        optimiser = torch.optim.SparseAdam(list(model.parameters()), lr=0.1)
        losses.append([])
        for batch in itertools.chain(*(loader for _ in range(10))):
            loss = model(*batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][-1] < losses[0][0]


def test_samples_on_the_cpu_meet_embeddings_on_the_device(device):
    model = twins("MetaPath2Vec", shops(), ["uc", "cu"], 2)[0]
    batch = model.sample(torch.arange(5))
    expected, _ = loss_and_grads(model, *batch)
    found, _ = loss_and_grads(model.to(device), *batch)
    for value, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(value.cpu(), wanted, rtol=1e-4, atol=1e-5)
    assert len(model.sample(torch.arange(5).to(device))[0])


def test_a_walk_that_ended_has_no_pairs_after_its_end():
    """DGL pairs with the last node of the type there."""
    graph = shops(ended=True)
    model = ours.MetaPath2Vec(graph, ["uc", "cu"], 3)
    walks = dgl.sampling.random_walk(graph, torch.arange(12), metapath=["uc", "cu"])[0]
    assert (walks[:, 2] < 0).any()
    users = torch.tensor(model.local_to_global_nid["user"])
    seen = dgl.reverse(graph).out_degrees(etype="cu") > 0  # users that a walk can end in
    starts = users[:5]
    pos_u, pos_v, neg_v = model.sample(torch.arange(5))
    others = set(users.tolist()) - set(starts.tolist()) - set(users[seen].tolist())
    assert not set(pos_u.tolist()) & others
    assert not set(pos_v.tolist()) & others
    assert neg_v.shape == (len(pos_u), 5)
    last = model.local_to_global_nid["user"][-1]
    alone = (dgl.reverse(graph).out_degrees(11, etype="cu")) == 0
    if alone:  # it is met by its own walk only
        counts = model.neg_prob.pow(4 / 3)
        assert counts[last] == counts[counts > 0].min()


def test_one_type_of_nodes_is_enough(device):
    """DGL fails where it looks for the rows of the types."""
    src, dst = loops().edges()
    graph = dgl.heterograph({("n", "to", "n"): (src, dst), ("n", "from", "n"): (dst, src)})
    assert type(raised(partial(theirs.MetaPath2Vec, graph, ["to", "from"], 1))) is AttributeError
    model = ours.MetaPath2Vec(graph, ["to", "from"], 1, 4).to(device)
    model(*model.sample(torch.arange(30))).backward()
    assert model.local_to_global_nid == {"n": list(range(30))}


@pytest.mark.parametrize("shape", [(8, 1), (1, 3), (1, 1), (0, 2)], ids=str)
def test_few_pairs(shape, device):
    """DGL squeezes away what has one entry."""
    model = ours.MetaPath2Vec(shops(), ["uc", "cu"], 1, 4).to(device)
    randomise(model)
    u, v = torch.arange(shape[0]), torch.arange(shape[0]) + 3
    neg = torch.arange(shape[0] * shape[1]).view(shape) + 5
    x, c = model.node_embed.weight.double(), model.context_embed.weight.double()
    u, v, neg = (ids.to(device) for ids in (u, v, neg))
    pos_score = (x[u] * c[v]).sum(1).clamp(-10, 10)
    neg_score = (x[u][:, None] * c[neg]).sum(2).clamp(-10, 10)
    logs = torch.nn.functional.logsigmoid
    expected = -(logs(pos_score) + logs(-neg_score).sum(1)).mean()
    found = model(u, v, neg)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("spoil", [lambda ids: ids[:-1], lambda ids: ids.flatten()[:2]])
def test_wrong_pairs(which, spoil):
    model = ours.MetaPath2Vec(shops(), ["uc", "cu"], 1, 4)
    batch = list(model.sample(torch.arange(5)))
    batch[which] = spoil(batch[which])
    error = raised(partial(model, *batch))
    assert type(error) is ValueError
    assert str(error).startswith("MetaPath2Vec: expected `pos_u`, `pos_v` and `neg_v`")


@pytest.mark.parametrize("wrong", [-1, 28])
def test_nodes_out_of_range(wrong):
    for model in twins("MetaPath2Vec", shops(), ["uc", "cu"], 1):
        for which in range(3):
            batch = [ids.clone() for ids in model.sample(torch.arange(5))]
            batch[which][1] = wrong
            assert type(raised(partial(model, *batch))) is IndexError


def test_meta_paths_are_walked_on_dgls_graphs():
    own = dgl_flash.graph(([0, 1], [1, 0]))
    error = raised(partial(ours.MetaPath2Vec, own, ["to"], 1))
    assert type(error) is TypeError
    assert "expected a DGLGraph" in str(error)


def test_the_number_of_threads_of_dgl_is_kept():
    before = dgl.utils.get_num_threads()
    ours.MetaPath2Vec(shops(), ["uc", "cu"], 1)
    assert dgl.utils.get_num_threads() == before


@pytest.mark.parametrize("length", range(1, 7))
@pytest.mark.parametrize("reach", range(0, 7))
def test_windows_are_dgls(length, reach):
    """As a list of the places of one walk would be cut."""
    places, expected = list(range(length)), []
    for i in places:
        part = places[max(i - reach, 0) : i + reach]
        expected += [[i, j] for rank, j in enumerate(part) if rank != i]
    assert skipgrams.windows(length, reach).tolist() == expected


def test_copies_and_pickles():
    for model in (
        ours.DeepWalk(loops(), 4, 5, 2),
        ours.MetaPath2Vec(shops(), ["uc", "cu"], 1, 4),
    ):
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert type(twin).__module__ == "dgl_flash.nn.network_emb"
            assert torch.equal(twin.node_embed.weight, model.node_embed.weight)
            twin.sample(torch.arange(5))
