"""Layers that repeat are told as one, and nothing else is."""

import pytest

import normgeom as ng
from normgeom.symmetry.folding import fold
from tests.golden.scan_models import REFERENCES, reference

LAYERS = {f"h.{k}.{name}": name for k in range(3) for name in ("q", "o")}


def test_layers_with_the_same_symmetries_are_one():
    pairs = [{f"h.{k}.q": 1, f"h.{k}.o": -1} for k in range(3)]
    stream = {"wte": 1, **{f"h.{k}.o": 1 for k in range(3)}, "head": -1}
    found = fold({"wte": 0, **LAYERS, "head": 0}, [stream, *pairs])
    assert list(found.names.values()) == ["wte", "h.0–2.q", "h.0–2.o", "head"]
    assert found.members["h.0.q"] == ["h.0.q", "h.1.q", "h.2.q"]
    assert [(one.exponents, one.place, one.count) for one in found.joint] == [
        ({"wte": 1, "h.0–2.o": 1, "head": -1}, 0, 1),
        ({"h.0–2.q": 1, "h.0–2.o": -1}, 1, 3),
    ]


@pytest.mark.parametrize(
    "joint",
    [
        [{"h.0.o": 1, "h.1.q": -1}],  # between two layers
        [{"h.0.q": 1, "h.0.o": -1}],  # in one layer only
        [{f"h.{k}.o": 1 + (k == 2) for k in range(3)}],  # other exponents in one layer
        [{"h.0.q": 1, "a": 1}, {"h.1.q": 1, "b": 1}, {"h.2.q": 1, "a": 1}],  # with different blocks outside
    ],
)
def test_layers_with_different_symmetries_stay_apart(joint):
    looks = {**LAYERS, "a": 0, "b": 0}
    found = fold(looks, joint)
    assert list(found.names.values()) == list(looks)
    assert [one.exponents for one in found.joint] == joint


def test_only_layers_that_look_the_same_and_stand_in_a_row_are_one():
    looks = {"h.0.a": 1, "h.1.a": 2, "h.2.a": 2, "h.3.a": 2, "h.5.a": 2}
    assert list(fold(looks, []).names.values()) == ["h.0.a", "h.1–3.a", "h.5.a"]


def test_layers_in_layers():
    looks = {f"s.{k}.l.{n}.w": k for k in range(2) for n in range(3)}
    assert list(fold(looks, []).names.values()) == ["s.0.l.0–2.w", "s.1.l.0–2.w"]
    same = dict.fromkeys(looks, 0)
    assert list(fold(same, []).names.values()) == ["s.0–1.l.0.w", "s.0–1.l.1.w", "s.0–1.l.2.w"]


@pytest.mark.parametrize("name", REFERENCES)
def test_nothing_is_lost(name):
    found = ng.scan(*reference(name))
    plain, folded = found.rows(), found.rows(folded=True)
    total = len(found.together)
    assert len({row["symmetry"] for row in plain if row["kind"] == "joint"}) == total
    shown = {row["symmetry"].partition(":")[0] for row in folded if row["kind"] == "joint"}
    assert sum(int(text.partition("×")[2] or 1) for text in shown) == total


def test_a_transformer_is_its_layer():
    found = ng.scan(*reference("pre-LN"))
    text = repr(found)
    assert "b.0–1.a.q" in text
    assert "Q/K pair ×2: b.0–1.a.q.weight^+1 b.0–1.a.q.bias^+1 b.0–1.a.k.weight^-1" in text
    assert len(found.cells(folded=True)) == 21
    assert len(found.cells()) == len(found.blocks) == 37
    post = ng.scan(*reference("post-LN"))
    assert len(post.cells(folded=True)) == len(post.blocks)
