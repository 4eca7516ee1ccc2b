"""Generated from DGL as it is installed: signatures, grids of options, spoiled arguments."""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
from functools import partial

import pytest
import torch
from torch import nn

from dgl_flash.nn import missing
from tests.nn.common import ours, raised, theirs
from tests.nn.layers import LAYERS
from tests.nn.test_contract import parameters
from tests.nn.tutorial import TUTORIAL
from tests.nn.variants import VARIANTS

# DGL's draws warn about empty matrices, as ours do.
pytestmark = pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
# What is no layer of the tests' table.
ALL = [
    *VARIANTS,
    ("GNNExplainer", (nn.Linear(5, 3), 2), {}),
    ("HeteroGNNExplainer", (nn.Linear(5, 3), 2), {}),
    ("HeteroGraphConv", ({"a": nn.Linear(4, 3), ("u", "b", "v"): nn.Identity()},), {}),
    ("HeteroPGExplainer", (nn.Linear(5, 3), 4), {}),
    ("HeteroSubgraphX", (nn.Linear(5, 3), 2), {}),
    ("KNNGraph", (3,), {}),
    ("PGExplainer", (nn.Linear(5, 3), 4), {}),
    ("RadiusGraph", (0.5,), {}),
    ("SegmentedKNNGraph", (3,), {}),
    ("SubgraphX", (nn.Linear(5, 3), 2), {}),
]
BASES = {name: (args, kwargs) for name, args, kwargs in reversed(ALL)}
LIBRARIES = (ours, theirs)
# torch's `recurse` too.
WIDER = {("PGExplainer", "parameters")}
# Called as all scalers, with the degree and its mean; as any module.
WIDER |= {("scale_identity", ""), ("Propagate", ""), ("PropagateNoPrecond", "")}
# What DGL's own code is made of, and ours is not.
NOT_HERE = {
    "conv.atomicconv": {"msg_func", "reduce_func"},
    "conv.grouprevres": {"InvertibleCheckpoint"},
    "conv.twirlsconv": {"AX", "D_power_X", "D_power_bias_X", "normalized_AX"},
    "explain.subgraphx": {"MCTSNode"},
    "gt.spatial_encoder": {"gaussian"},
    "utils": {"bmm_maybe_select", "matmul_maybe_select"},
}


def public(module):
    """Classes and functions that a module of DGL defines or hands on."""
    for name, value in vars(module).items():
        written_here = getattr(value, "__module__", "").startswith("dgl.nn")
        if written_here and not name.startswith("_") and name != "Identity" and callable(value):
            yield name, value


# Signatures


@pytest.mark.parametrize("name", sorted(missing.DGL_NAMES))
def test_signatures_of_all_methods(name):
    mine, other = (getattr(library, name) for library in LIBRARIES)
    if not inspect.isclass(other):
        assert parameters(mine) == parameters(other)
        return
    for key in vars(other):
        method = getattr(other, key)
        is_public = callable(method) and (key == "__init__" or not key.startswith("_"))
        if is_public and (name, key) not in WIDER:
            assert parameters(getattr(mine, key)) == parameters(method), key


@pytest.mark.parametrize("path", sorted(missing.DGL_MODULES))
def test_parts_of_every_module(path):
    """Towers, blocks, aggregators and scalers, which are imported from where DGL has them."""
    home = importlib.import_module(f"dgl_flash.nn.{path}")
    there = dict(public(importlib.import_module(f"dgl.nn.pytorch.{path}")))
    assert {name for name in there if not hasattr(home, name)} == NOT_HERE.get(path, set())
    for name, value in there.items():
        if hasattr(home, name) and (name, "") not in WIDER:
            assert parameters(of_call(getattr(home, name))) == parameters(of_call(value)), name


def of_call(value):
    return value.__init__ if inspect.isclass(value) else value


# Options


def another(parameter):
    """Another value for an option, made from its default; None: no idea."""
    if isinstance(parameter.default, bool):
        return not parameter.default
    if isinstance(parameter.default, float) and 0 <= parameter.default < 1:
        return 0.25
    return nn.PReLU() if parameter.name == "activation" else None


def options_of(name, args, kwargs):
    """The parameters of DGL's constructor that a variant leaves at their defaults."""
    found = list(inspect.signature(getattr(theirs, name)).parameters.values())[len(args) :]
    named = (p for p in found if p.kind is p.POSITIONAL_OR_KEYWORD)
    return [p for p in named if p.default is not p.empty and p.name not in kwargs]


def grid(name, args, kwargs):
    """None, and up to three options at a time, with another value."""
    values = {p.name: another(p) for p in options_of(name, args, kwargs)}
    if name == "EGATConv":
        values.pop("bias", None)  # DGL's constructor fails; test_egatconv.py has it
    usable = [key for key, value in values.items() if value is not None]
    for count in range(4):
        for keys in itertools.combinations(usable, count):
            yield {**kwargs, **{key: values[key] for key in keys}}


def build(library, name, args, kwargs):
    """A layer and the state of the generator after it, or what was raised instead of it."""
    torch.manual_seed(7)
    try:
        return getattr(library, name)(*args, **kwargs), torch.get_rng_state()
    except Exception as error:
        return error, None


def test_every_class_has_a_variant():
    classes = {name for name in missing.DGL_NAMES if inspect.isclass(getattr(theirs, name))}
    assert set(BASES) == classes - missing.LAZY.keys()


# Numbered: the text of a function holds its address, which differs between test processes.
@pytest.mark.parametrize(
    ("name", "args", "kwargs"), [pytest.param(*v, id=f"{v[0]}-{i}") for i, v in enumerate(ALL)]
)
def test_grid_of_options(name, args, kwargs):
    for options in grid(name, args, kwargs):
        (mine, after), (other, expected) = (build(lib, name, args, options) for lib in LIBRARIES)
        if isinstance(other, Exception):
            assert (type(mine), str(mine)) == (type(other), str(other)), options
            continue
        assert repr(mine) == repr(other), options
        found, wanted = mine.state_dict(), other.state_dict()
        assert list(found) == list(wanted), options
        for key, value in wanted.items():
            assert found[key].dtype == value.dtype and torch.equal(found[key], value), options
        assert torch.equal(after, expected), options


# Errors

WRONG = (None, "nonsense", 0, -1)
# Texts of Python and of torch name the call inside that failed.
BY_OTHERS = (TypeError, AttributeError, RuntimeError)
# DGL's has {} where the name should be.
OTHER_TEXT = {("SetTransformerEncoder", "block_type")}
# Ours says what it takes, where DGL's stumbles; and EGATConv works without a bias.
OTHER_CLASS = {("MetaPath2Vec", "g"), ("EGATConv", "bias")}


def spoiled(name):
    """Each argument of the constructor in turn, with what cannot be meant."""
    args, kwargs = BASES[name]
    takes = inspect.signature(getattr(theirs, name)).parameters.values()
    names = [p.name for p in takes if p.kind is p.POSITIONAL_OR_KEYWORD]
    given = dict(zip(names, args, strict=False)) if len(names) >= len(args) else {}
    for key in names:
        for value in WRONG:
            yield key, {**given, **kwargs, key: value}


@pytest.mark.parametrize("name", sorted(BASES))
def test_errors_of_constructors(name):
    """Same class; same text where it is DGL's own."""
    for key, arguments in spoiled(name):
        if (name, key) in OTHER_CLASS:
            continue
        (mine, _), (other, _) = (build(library, name, (), arguments) for library in LIBRARIES)
        if not isinstance(other, Exception):
            assert not isinstance(mine, Exception), (key, arguments[key])
            continue
        assert type(mine) is type(other), (key, arguments[key])
        if not isinstance(other, BY_OTHERS) and (name, key) not in OTHER_TEXT:
            # What they print of a set is in the order of the day.
            assert words(mine) == words(other) if "{" in str(other) else str(mine) == str(other)


def words(error):
    return sorted(re.findall(r"\w+", str(error)))


@pytest.mark.parametrize("name", sorted(BASES))
def test_arguments_that_nobody_takes(name):
    args, kwargs = BASES[name]
    (mine, _), (other, _) = (
        build(library, name, args, {**kwargs, "unknown": 1}) for library in LIBRARIES
    )
    assert type(mine) is type(other) is TypeError
    # After the name of the class that has the constructor, which may be a base.
    assert str(mine).partition(".")[2] == str(other).partition(".")[2]


@pytest.mark.parametrize("name", sorted(key for key in LAYERS if key.split()[0] not in TUTORIAL))
def test_calls_without_arguments(name):
    """Python's text has the names of the class and of what is missing."""
    pair = LAYERS[name].twins()
    for arguments in ({}, {"unknown": 1}):
        if name == "WeightBasis" and not arguments:
            continue  # it takes none
        mine, other = (raised(partial(layer, **arguments)) for layer in pair)
        assert (type(mine), str(mine)) == (type(other), str(other))
