"""A scan reaches the counts found independently, and says of each symmetry which it is."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

import normgeom as ng
from tests.golden.scan_models import REFERENCES, reference
from tests.symmetry import scan_oracles as oracles
from tests.symmetry.scanned import OnlyFloat32, seeded


@pytest.fixture(scope="module")
def maps():
    return {name: ng.scan(*reference(name)) for name in REFERENCES}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference_counts(maps, name):
    found, wanted = maps[name], REFERENCES[name]
    assert found.nullity == wanted.nullity
    assert {one.block for one in found.single} == set(wanted.single)
    assert {one.block for one in found.dead} == set(wanted.dead)
    free = {
        b.block for b in found.blocks if ng.Move.SHIFT_UNITS in b.moves and b.moves[ng.Move.SHIFT_UNITS].holds
    }
    assert {n for n in free if n.endswith("weight") and len(found[n].shape) > 1 and n != "tok.weight"} == set(
        wanted.units
    )
    assert (found.findings, found.dtype) == ((), "float64")
    assert all(verdict.confirmed for one in found.blocks for verdict in one.moves.values())


@pytest.mark.parametrize("name", REFERENCES)
def test_the_null_space_is_that_of_a_dense_jacobian(maps, name):
    model, batch = reference(name)
    matrix = oracles.exponent_matrix(maps[name])
    null = oracles.radial_null_space(model, batch)
    assert np.linalg.matrix_rank(matrix) == len(matrix) == null.shape[1]
    assert np.abs(matrix.T - null @ (null.T @ matrix.T)).max() < 1e-6


@pytest.mark.parametrize("name", REFERENCES)
def test_a_finite_transform_of_the_users_model_confirms_each(maps, name):
    model, batch = reference(name)
    for joint in maps[name].joint:
        assert oracles.scaled_deviation(model, batch, joint.exponents, 1.7) < 1e-11


@pytest.mark.parametrize("name", REFERENCES)
def test_a_wrong_exponent_is_not_confirmed(maps, name):
    model, batch = reference(name)
    for joint in maps[name].joint:
        wrong = dict(joint.exponents)
        wrong[next(iter(wrong))] += 1
        assert oracles.scaled_deviation(model, batch, wrong, 1.7) > 1e-6


@pytest.mark.parametrize("name", REFERENCES)
def test_cost_is_a_few_passes_a_block(maps, name):
    found = maps[name]
    # Passes that do not depend on the number of blocks: points, rounding, check of the gradients.
    assert found.forwards + 2 * found.backwards <= 4 * len(found.blocks) + 20


RULES = {
    "pre-LN": {
        "residual stream: embeddings with all residual writers": 1,
        "gain/next weight pair": 5,
        "Q/K pair": 2,
        "V/O pair": 2,
    },
    "pre-LN without biases, relu": {
        "residual stream: embeddings with all residual writers": 1,
        "gain/next weight pair": 5,
        "Q/K pair": 2,
        "V/O pair": 2,
        "relu pair": 2,
    },
    "RMSNorm, normalized queries and keys": {
        "residual stream: embeddings with all residual writers": 1,
        "gain/next weight pair": 5,
        "V/O pair": 2,
    },
    "post-LN": {
        "residual stream with its readers": 4,
        "gain/next weight pair": 1,
        "Q/K pair": 2,
        "V/O pair": 2,
    },
    "LN-LSTM": {},
    "LN-LSTM, one norm": {"one norm": 1},
    "batch norm": {"residual stream: all writers": 1, "gain/next weight pair": 1},
    "group norm": {"one norm": 1, "gain/next weight pair": 1, "residual stream with its readers": 1},
}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_words(maps, name):
    assert Counter(one.rule for one in maps[name].joint) == RULES[name]


def test_words_name_the_blocks(maps):
    found = {one.label: one for one in maps["pre-LN"].joint}
    pair = found["nf.weight^+1 nf.bias^+1 head.weight^-1"]
    units = "every unit can have a factor of its own"
    assert (pair.by, pair.why) == ("unit", f"the output of nf is read by head.weight alone; {units}")
    keys = found["b.0.a.q.weight^+1 b.0.a.q.bias^+1 b.0.a.k.weight^-1"]
    assert keys.by == "unit"
    assert "the scores are products of queries and keys" in keys.why
    assert maps["pre-LN"]["b.0.a.k.bias"].why == (
        "dead parameter: the outputs do not depend on it; a key bias adds one number to all logits of a "
        "query, which the softmax ignores"
    )


def test_parts(maps):
    filters = [(part.kind, part.move, len(part.free)) for part in maps["batch norm"]["c1.weight"].parts]
    assert filters == [("filter", ng.Move.SCALE, 8)]
    heads = maps["RMSNorm, normalized queries and keys"]["b.0.a.q.weight"].parts
    assert [(part.kind, len(part.free)) for part in heads] == [("head", 2)]
    assert maps["group norm"]["c1.weight"].parts == ()


def test_joint_shifts(maps):
    assert [one.label for one in maps["pre-LN"].joint_shifts] == ["pos·+1 tok.weight·-1"]
    lstm = {one.label for one in maps["LN-LSTM"].joint_shifts}
    assert lstm == {"bias·+1 lx.bias·-1", "lx.bias·+1 lh.bias·-1"}
    found = ng.scan(seeded(lambda: nn.LSTM(3, 4)), torch.randn(5, 2, 3))
    assert [one.label for one in found.joint_shifts] == ["bias_ih_l0·+1 bias_hh_l0·-1"]
    assert found.nullity == 0


@pytest.mark.parametrize("name", ["pre-LN", "LN-LSTM, one norm", "group norm"])
def test_the_reference_counts_in_float32(name):
    model, batch = reference(name)
    found = ng.scan(OnlyFloat32(model.float()), batch.float() if batch.is_floating_point() else batch)
    assert (found.nullity, found.dtype, found.findings) == (REFERENCES[name].nullity, "float32", ())
