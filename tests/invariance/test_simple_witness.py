"""Witnesses that can be read: small whole numbers, and the corner of a large array."""

import torch

import normgeom as ng
from normgeom.invariance.verdict import Witness


def centred_at_the_median(weight, data):
    summed = data @ weight.T
    centred = summed - summed.median(-1, keepdim=True).values
    return centred / (centred.abs().mean(-1, keepdim=True) + 1e-5)


def test_where_the_numeric_engine_is_alone_its_witness_is_of_small_whole_numbers():
    row = ng.check(centred_at_the_median)
    for witness in (row["WeightVectorRescale"].witness, row["DatasetRecenter"].witness):
        assert all(torch.equal(a, a.round().clamp(-2, 2)) for a in (witness.weight, witness.data))
        at, moved = (witness.weight, witness.data), witness.transform(witness.weight, witness.data)
        seen = [float(centred_at_the_median(*p)[witness.case, witness.unit]) for p in (at, moved)]
        assert seen == [witness.before, witness.after]
        assert witness.deviation > 0.1
    assert row["CaseRescale"].reason.startswith("decided by the numeric engine alone: abstract: its law is")
    assert row["DatasetRecenter"].reason.startswith("abstract: its law is lost at aten.median")


def test_a_witness_at_data_given_is_of_these_data(point):
    (verdict,) = ng.check(centred_at_the_median, [ng.DatasetRecenter], weight=point[0], data=point[1])
    assert torch.equal(verdict.witness.data, point[1])


def test_a_large_witness_shows_its_corner():
    array = torch.arange(128.0).reshape(8, 16)
    said = str(Witness(array, array.reshape(8, 4, 2, 2), "a", 0, 0, 1.0, 2.0))
    assert "weight = [[0, 1, 2, ...], [16, 17, 18, ...], [32, 33, 34, ...], ...] (shape (8, 16))" in said
    assert "data   = [[[[0, 1], [2, 3]], ...], ...] (shape (8, 4, 2, 2))" in said
