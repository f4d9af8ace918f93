"""What the table says beyond yes and no, measured: symmetries, laws of eps, gradient identities, degrees."""

import pytest
import torch

import normgeom as ng
from normgeom.invariance import gradient_identity_error, scaling_degree
from normgeom.variants import VARIANTS, Symmetry, variant
from normgeom.variants.measure import eps_law_error, point, symmetry_error

by_name = pytest.mark.parametrize("v", VARIANTS, ids=lambda v: v.name)
JOINT = [(v, s) for v in VARIANTS for s in v.symmetries]
ROUNDING = 1e-12


@pytest.mark.parametrize(("v", "symmetry"), JOINT, ids=lambda p: getattr(p, "name", getattr(p, "text", "")))
@pytest.mark.parametrize("scale", [0.4, 1.7])
def test_joint_symmetries_hold(v, symmetry, scale, generator):
    weight, data = point(v, generator=generator)
    assert symmetry_error(v, symmetry, weight, data, scale=scale) < ROUNDING


@pytest.mark.parametrize(("v", "symmetry"), JOINT, ids=lambda p: getattr(p, "name", getattr(p, "text", "")))
def test_joint_symmetries_move_something(v, symmetry, generator):
    weight, data = point(v, generator=generator)
    moved_weight, moved_data, options = symmetry.move(1.7, weight, data, dict(v.options))
    still = torch.equal(moved_weight, weight) and torch.equal(moved_data, data)
    assert not still or options != dict(v.options)


def test_half_of_a_joint_symmetry_is_none(generator):
    for v in (variant("DyT"), variant("EvoNorm S0, conv"), variant("DeepNorm"), variant("batch norm, eval")):
        half = Symmetry("W → cW", "", lambda c, weight, data, options: (c * weight, data, options))
        assert symmetry_error(v, half, *point(v, generator=generator)) > 1e-3


def test_other_layers_do_not_have_them(generator):
    """A row shift belongs to weight standardization, not to weight norm; a mixing of heads to bare logits."""
    shift = variant("centred weight norm").symmetries[0]
    (mix,) = variant("attention logits, no norm").symmetries
    for name, symmetry in (("weight norm", shift), ("cosine norm", shift), ("QK-norm, L2", mix)):
        v = variant(name)
        assert symmetry_error(v, symmetry, *point(v, generator=generator)) > 1e-3


@pytest.mark.parametrize("v", [v for v in VARIANTS if v.eps_power], ids=lambda v: v.name)
def test_laws_of_eps(v, generator):
    weight, data = point(v, generator=generator)
    assert eps_law_error(v, weight, data) < ROUNDING
    wrong = {1: 2, 2: 1}[v.eps_power]
    small = weight / 8, data / 8  # a clamp is felt by vectors shorter than it
    assert eps_law_error(v, *small) < ROUNDING
    object.__setattr__(v, "eps_power", wrong)
    try:
        assert eps_law_error(v, *small) > 1e-3
    finally:
        object.__setattr__(v, "eps_power", 3 - wrong)


@pytest.mark.parametrize("v", VARIANTS, ids=lambda v: v.name)
def test_an_eps_that_is_claimed_to_matter_has_a_law(v):
    felt = any(claim.kind == "invariant up to eps" for claim in v.claims)
    assert not felt or (v.eps > 0 and v.eps_power is not None)


def test_a_layer_without_a_law_says_so(generator):
    with pytest.raises(ValueError, match="weight norm states no law of its eps"):
        eps_law_error(variant("weight norm"), *point(variant("weight norm"), generator=generator))


@by_name
def test_gradient_identities(v, generator):
    """They hold where the invariance does, but for what the layer declares."""
    weight, data = point(v, generator=generator)
    for action, claim in zip(ng.TABLE_1, v.claims, strict=True):
        element = action.sample(weight, data, generator=generator)
        error = gradient_identity_error(v.with_eps(0.0), element, weight, data, generator=generator)
        expected = (claim.holds or action.__name__ in v.gradient_only) and (
            action.__name__ not in v.gradient_broken
        )
        assert error < ROUNDING if expected else error > 1e-5, (action.__name__, error)


def test_gradient_identities_need_an_element(generator):
    with pytest.raises(TypeError, match=r"one element is needed, such as CaseRescale\(\.\.\.\)"):
        gradient_identity_error(ng.LayerNorm(), ng.CaseRescale, *[torch.ones(3, 2)] * 2, generator=generator)


@by_name
def test_degrees(v, generator):
    """Measured for any real number, at eps = 0; an invariance has degree 0."""
    weight, data = point(v, generator=generator)
    for action, claim in zip(ng.TABLE_1, v.claims, strict=True):
        if action.sign is None:
            continue
        element = action.sample(weight, data, generator=generator)
        found = scaling_degree(v.with_eps(0.0), element, weight, data)
        if claim.holds and v.family != "attention" and found is not None:
            assert found == pytest.approx(0, abs=1e-8)
        elif not claim.holds:
            assert found == (claim.degree if claim.degree is None else pytest.approx(claim.degree, abs=1e-8))
