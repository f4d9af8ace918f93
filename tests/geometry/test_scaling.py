"""Scaling exponents of the blocks of the metric."""

import pytest
import torch

from normgeom.geometry.closed_form import closed_form_fisher
from normgeom.geometry.glm import NormalizedGLM
from normgeom.geometry.scaling import compare_blocks, scale, scaling_exponents
from normgeom.norms import BatchNorm
from tests.geometry.glms import AUDIT, FAMILIES, problem

LETTERS = {"w": "weight", "b": "bias", "g": "gain"}


def our_block(block):
    """The audit's `wb[01]` as our names: unit 0 is scaled, unit 1 stands for the others."""
    names = [LETTERS[letter] for letter in block[:2]]
    if "[" not in block:
        return tuple(names)
    return tuple(
        f"{n}[{'0' if place == '0' else 'others'}]" for n, place in zip(names, block[3:5], strict=True)
    )


@pytest.mark.parametrize("key", [key for key in AUDIT["scaling_exponents"] if key.endswith("=2.0")])
def test_exponents_are_the_audits(key):
    norm, family, which, _ = key.split("|")
    row = 0 if which == "row0" else None
    model, params, data = problem(norm, family)
    found = exponents(norm, model, params, data, row)
    for block, expected in AUDIT["scaling_exponents"][key].items():
        ours = found[our_block(block)]
        if expected is None:
            assert ours.law == "zero", block
        elif expected["proportional"] and round(expected["exponent"], 9) in (-2, -1, 0):
            assert ours.law == "power law", block
            assert ours.exponent == pytest.approx(expected["exponent"], abs=1e-10), block
        else:
            # One number is proportional to another, but by no law: the second delta says so.
            assert ours.law == "no power law", block


def exponents(norm, model, params, data, row):
    """Frozen statistics are those of the scaled weights, as in the audit."""
    if norm != "bn_frozen":
        return scaling_exponents(model, params, data, row=row)
    matrices = []
    for delta in (1.0, 2.0, 3.0):
        weight = scale(params["weight"], delta, row)
        frozen = NormalizedGLM(BatchNorm().freeze(weight, data), model.family)
        matrices.append(closed_form_fisher(frozen, {**params, "weight": weight}, data))
    return compare_blocks(matrices[0], matrices[1:], (2.0, 3.0), row=row)


def test_the_weight_block_changes_by_a_quarter_not_a_half():
    model, params, data = problem("ln", "categorical")
    found = scaling_exponents(model, params, data)
    assert found["weight", "weight"].ratios[0] == pytest.approx(1 / 4)
    assert found["weight", "gain"].ratios[0] == pytest.approx(1 / 2)


def test_scaling_exponents_of_a_module():
    module = torch.nn.Sequential(torch.nn.Linear(5, 4, bias=False), torch.nn.LayerNorm(4, eps=0.0)).double()
    params = {name: value.detach() for name, value in module.named_parameters()}
    _, _, data = problem("ln", "bernoulli")
    found = scaling_exponents(module, params, data, name="0.weight", family=FAMILIES["bernoulli"])
    assert found["0.weight", "0.weight"].exponent == pytest.approx(-2)
    assert found["0.weight", "1.bias"].exponent == pytest.approx(-1)
    assert found["1.weight", "1.weight"].exponent == pytest.approx(0, abs=1e-12)


def test_one_delta_cannot_tell_a_power_law():
    with pytest.raises(ValueError, match=r"two or more numbers other than 0, 1 and -1; got \(2.0,\)"):
        scaling_exponents(*problem("ln", "gaussian"), deltas=(2.0,))
