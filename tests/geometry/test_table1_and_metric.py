"""Table 1 and the metric check each other: F annihilates the symmetries that `ng.check` finds, no others."""

import pytest
import torch

import normgeom as ng
from tests.geometry.glms import FAMILIES, NORMS, problem

WEIGHT_ACTIONS = [ng.WeightMatrixRescale, ng.WeightMatrixRecenter, ng.WeightVectorRescale]
UNITS, INPUTS = 4, 5
NORMALIZED = ["wn", "bn", "ln", "rms"]


def tangent(transforms, params, data):
    """A basis of the tangent of the group that these actions generate: (directions, units * inputs)."""
    found = [ng.tangent_directions(t, params["weight"], data).flatten(1) for t in transforms]
    directions = torch.cat([*found, params["weight"].new_zeros(1, UNITS * INPUTS)])
    _, sizes, basis = torch.linalg.svd(directions, full_matrices=False)
    return basis[sizes > 1e-12 * max(float(sizes[0]), 1e-300)]


def own_nulls(family, norm, params, data):
    """What a categorical does not see: one number added to all logits of a case.

    The constant through the biases; gamma^T x where an output is linear in its own weight and x, that is for
    weight and batch norm, with gains that make up for the change of the spread.
    """
    if family != "categorical":
        return []
    constant = {"bias": torch.ones(UNITS).double()}
    metric = {"none": None, "wn": torch.eye(INPUTS).double(), "bn": data.T.cov(correction=0)}
    if norm not in metric:
        return [constant]
    if norm == "none":
        return [constant, *({"weight": row.expand(UNITS, -1)} for row in torch.eye(INPUTS).double())]
    weight, gain = params["weight"], params["gain"]
    spread = ((weight @ metric[norm]) * weight).sum(1).sqrt()
    return [constant] + [
        {"weight": (spread / gain)[:, None] * gamma, "gain": weight @ metric[norm] @ gamma / spread}
        for gamma in torch.eye(INPUTS).double()
    ]


def rows_of(F, directions, symmetry):
    """All directions as rows in the order of F."""
    flat = F.matrix.new_zeros(len(symmetry) + len(directions), len(F.order))
    flat[: len(symmetry), F.order.positions("weight")] = symmetry
    for row, direction in zip(flat[len(symmetry) :], directions, strict=True):
        for name, part in direction.items():
            row[F.order.positions(name)] = part.flatten()
    return flat


@pytest.fixture(scope="module")
def table():
    """The three columns of the weight, decided by the engines."""
    layers = {name: NORMS[name] for name in ("none", *NORMALIZED)}
    return ng.invariance_table(layers, WEIGHT_ACTIONS)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "categorical", "poisson"])
@pytest.mark.parametrize("norm", ["none", *NORMALIZED])
def test_the_null_space_is_the_tangent_of_the_invariances_found(table, norm, family):
    model, params, data = problem(norm, family)
    F = ng.fisher(model, params, data)
    holds = [t for t, verdict in zip(WEIGHT_ACTIONS, table[norm], strict=True) if verdict.holds]
    symmetry = tangent(holds, params, data)
    nulls = rows_of(F, own_nulls(family, norm, params, data), symmetry)
    assert float((F.matrix @ nulls.T).norm()) < 1e-12 * float(F.matrix.norm()) * (1 + float(nulls.norm()))
    assert int(torch.linalg.matrix_rank(nulls)) == len(nulls)
    assert F.rank == len(F.order) - len(symmetry) - (len(nulls) - len(symmetry))
    # The null space itself, not only its dimension.
    found, basis = ng.null_space(F), torch.linalg.qr(nulls.T)[0]
    torch.testing.assert_close(found.basis @ found.basis.T, basis @ basis.T, rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", ["none", *NORMALIZED])
def test_an_action_that_does_not_hold_is_seen_by_the_metric(table, norm):
    model, params, data = problem(norm, "gaussian")
    F = ng.fisher(model, params, data)
    for transform, verdict in zip(WEIGHT_ACTIONS, table[norm], strict=True):
        directions = ng.tangent_directions(transform, params["weight"], data)
        errors = [ng.annihilation_error(F, {"weight": d}) for d in directions]
        assert (max(errors) < 1e-13) == verdict.holds, transform.__name__
        assert max(errors) < 1e-13 or max(errors) > 1e-4


@pytest.mark.parametrize("norm", NORMALIZED)
def test_with_eps_the_symmetries_that_are_exact_remain(norm):
    model, params, data = problem(norm, "bernoulli", eps=0.1)
    # Without the gains: a gain can make up for the length of its weight, which with eps is seen in eta.
    F = ng.fisher(model, params, data, blocks=["weight", "bias"])
    row = ng.check(NORMS[norm], WEIGHT_ACTIONS, eps=0.1)
    exact = [t for t, verdict in zip(WEIGHT_ACTIONS, row, strict=True) if verdict.exactly]
    symmetry = tangent(exact, params, data)
    assert len(symmetry) == (INPUTS if norm == "ln" else 0)
    assert F.rank == len(F.order) - len(symmetry)


@pytest.mark.parametrize("norm", ["bn", "ln"])
def test_a_module_has_the_same_null_directions(table, norm):
    _, params, data = problem(norm, "poisson")
    layer = torch.nn.LayerNorm(UNITS, eps=0.0) if norm == "ln" else torch.nn.BatchNorm1d(UNITS, eps=1e-300)
    net = torch.nn.Sequential(torch.nn.Linear(INPUTS, UNITS, bias=False), layer).double()
    own = {"0.weight": params["weight"], "1.weight": params["gain"], "1.bias": params["bias"]}
    F = ng.fisher(net, own, data, family=FAMILIES["poisson"])
    holds = [t for t, verdict in zip(WEIGHT_ACTIONS, table[norm], strict=True) if verdict.holds]
    symmetry = tangent(holds, params, data)
    assert F.rank == len(F.order) - len(symmetry)
    for direction in symmetry:
        assert ng.annihilation_error(F, {"0.weight": direction.view(UNITS, INPUTS)}) < 1e-13
