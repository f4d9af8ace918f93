"""Table 1 tied to the metric: what leaves the outputs has no curvature."""

import pytest
import torch

from normgeom.geometry.closed_form import closed_form_fisher
from normgeom.geometry.null_space import annihilation_error, null_space, tangent_directions
from normgeom.transforms import (
    CaseRescale,
    WeightMatrixRecenter,
    WeightMatrixRescale,
    WeightVectorRecenter,
    WeightVectorRescale,
)
from tests.geometry.glms import problem

# Table 1, the weight's columns, and the dimension of the group that they make.
GROUPS = {
    "none": ([], 0),
    "wn": ([WeightMatrixRescale, WeightVectorRescale], 4),
    "bn": ([WeightMatrixRescale, WeightVectorRescale], 4),
    "ln": ([WeightMatrixRescale, WeightMatrixRecenter], 6),
    "rms": ([WeightMatrixRescale], 1),
    # The norm of the input W LN(x) leaves W unnormalized; LN(x) sums to 0, so a constant row drops out.
    "input_ln": ([WeightVectorRecenter], 4),
}


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "categorical"])
@pytest.mark.parametrize("norm", GROUPS)
def test_table_1_and_the_metric_agree(norm, family):
    model, params, data = problem(norm, family)
    fisher = closed_form_fisher(model, params, data)
    transforms, dimension = GROUPS[norm]
    tangents = [{"weight": d} for t in transforms for d in tangent_directions(t, params["weight"], data)]
    nulls = tangents + joint_nulls(norm, params) + family_nulls(norm, family, params, data)
    assert all(annihilation_error(fisher, direction) < 1e-14 for direction in nulls)
    assert rank_of(tangents) == dimension
    found = null_space(fisher)
    assert found.nullity == rank_of(nulls)
    assert found.gap > 1e6
    assert all(found.contains(fisher, direction) for direction in nulls)


def joint_nulls(norm, params):
    """Without a normalization of the weight, a unit's gain only repeats its weight's length."""
    if norm != "input_ln":
        return []
    units = torch.eye(4, dtype=torch.float64)
    return [{"weight": u[:, None] * params["weight"], "gain": -u * params["gain"]} for u in units]


def family_nulls(norm, family, params, data):
    """Class probabilities do not see a number added to all logits of a case: a constant, or gamma^T x."""
    if family != "categorical":
        return []
    affine = (
        [] if norm in ("ln", "rms") else [linear_shift(norm, params, data, g) for g in torch.eye(5).double()]
    )
    return [{"bias": torch.ones(4, dtype=torch.float64)}, *affine]


def linear_shift(norm, params, data, gamma):
    """The change that adds gamma^T x to every output of a norm with outputs linear in x (or in LN(x))."""
    weight, gain = params["weight"], params.get("gain", torch.ones(4, dtype=torch.float64))
    if norm in ("none", "input_ln"):
        return {"weight": gamma / gain[:, None]}
    metric = torch.eye(5, dtype=torch.float64) if norm == "wn" else data.T.cov(correction=0)
    # eta_i = g_i w_i^T x / s_i with s_i^2 = w_i^T metric w_i: the gain makes up for the change of s_i.
    spread = ((weight @ metric) * weight).sum(1).sqrt()
    return {"weight": (spread / gain)[:, None] * gamma, "gain": weight @ metric @ gamma / spread}


def rank_of(directions):
    if not directions:
        return 0
    rows = [torch.cat([d.get(n, torch.zeros(s)).double().flatten() for n, s in SIZES]) for d in directions]
    return int(torch.linalg.matrix_rank(torch.stack(rows), rtol=1e-9))


SIZES = (("weight", (4, 5)), ("bias", (4,)), ("gain", (4,)))


@pytest.mark.parametrize("norm", ["wn", "bn", "ln", "rms"])
def test_eps_leaves_curvature_along_the_radial_direction_only(norm):
    model, params, data = problem(norm, "gaussian", eps=0.1)
    fisher = closed_form_fisher(model, params, data)
    assert annihilation_error(fisher, {"weight": params["weight"]}) > 1e-5
    if norm == "ln":
        shifts = tangent_directions(WeightMatrixRecenter, params["weight"], data)
        assert all(annihilation_error(fisher, {"weight": d}) < 1e-14 for d in shifts)


def test_frozen_statistics_leave_only_what_gain_and_weight_share():
    model, params, data = problem("bn_frozen", "gaussian")
    fisher = closed_form_fisher(model, params, data)
    assert annihilation_error(fisher, {"weight": params["weight"]}) > 1e-3
    shift = params["gain"] * model.norm.mean / model.norm.variance.sqrt()
    units = torch.eye(4, dtype=torch.float64)
    shared = [
        {"weight": u[:, None] * params["weight"], "gain": -u * params["gain"], "bias": -u * shift}
        for u in units
    ]
    assert all(annihilation_error(fisher, direction) < 1e-14 for direction in shared)
    assert null_space(fisher).nullity == rank_of(shared) == 4


def test_transforms_of_the_data_have_no_direction():
    with pytest.raises(ValueError, match="CaseRescale moves the data, not the weight"):
        tangent_directions(CaseRescale, torch.ones(2, 2), torch.ones(2, 2))
