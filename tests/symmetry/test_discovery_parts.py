"""The linear algebra and the finite transforms by themselves, with faults that they must reject."""

import pytest
import torch

from normgeom.symmetry.discovery.algebra import solve
from normgeom.symmetry.discovery.confirm import Finite
from normgeom.symmetry.discovery.layout import Layout
from normgeom.symmetry.discovery.readable import Independent, echelon, readable, whole
from normgeom.symmetry.discovery.subject import Subject
from tests.symmetry import discoverable as layers


def subject(function, shape=(4, 3)):
    return Subject(
        "layer", {"W": shape}, (6, shape[1]), lambda p, x: function(p["W"], x), torch.device("cpu")
    )


def rotations(generator):
    """Draws of the Jacobian of |w|, which sees nothing but the length."""

    def draw():
        w = torch.randn(3, generator=generator, dtype=torch.float64)
        return w, w[None]

    return draw


def test_the_algebra_of_a_length(generator):
    found = solve(rotations(generator), 3, 1e-9)
    assert (found.dimension, found.shifts.shape[1]) == (3, 0)
    skew = torch.tensor([[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 0]]).double()
    symmetric = skew.abs()
    assert found.contains(torch.stack([skew, symmetric])).tolist() == [True, False]


def test_a_single_point_is_not_enough(generator):
    w = torch.randn(3, generator=generator, dtype=torch.float64)
    assert solve(lambda: (w, w[None]), 3, 1e-9).dimension > 3  # what the draws of several points exclude


def test_an_unseen_parameter_counts_with_its_coefficients(generator):
    draw = lambda: (torch.randn(2, generator=generator).double(), torch.tensor([[1.0, 0.0]]).double())  # noqa: E731
    found = solve(draw, 2, 1e-9)
    assert found.dimension == 3
    assert found.shifts.abs().flatten().tolist() == [0, 1]


def test_finite_transforms_confirm_a_symmetry_and_reject_a_fault(generator):
    layout, finite = Layout({"W": (4, 3)}), Finite(subject(layers.spectral_norm), generator)
    scale = layout.scaling(torch.ones(12).double())
    fault = scale.clone()
    fault[0, 0] = 1.001
    assert finite.follow(scale[None]).holds
    assert not finite.follow(fault[None]).holds


def test_affine_coefficients_are_followed_too(generator):
    layout, finite = Layout({"W": (4, 3)}), Finite(subject(layers.softmax), generator)
    column = next(layout.same_along("W", 0))
    row = layout.direction("W", 0, 1)
    assert finite.follow(layout.constant(column)[None], 13).holds
    assert not finite.follow(layout.constant(row)[None], 13).holds


def test_differences_give_the_derivative(generator):
    one = subject(layers.softmax)
    w, x = one.draw(generator)
    seen = one.difference(w, x)
    exact = torch.func.jacrev(lambda v: one.function(one.split(v), x).flatten())(w)
    torch.testing.assert_close(seen, exact * w.norm() / one.outputs(w, x).norm(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("function", "agrees"), [(layers.softmax, True), (layers.detached_layer_norm, False)]
)
def test_a_gradient_that_is_not_the_functions(function, agrees, generator):
    one = subject(function)
    assert (one.disagreement(*one.draw(generator), generator) < 1e-8) == agrees


def test_rounding_sees_float32(generator):
    one, other = subject(layers.in_float32), subject(layers.softmax)
    assert one.rounding(*one.draw(generator), generator) > 1e-8
    assert other.rounding(*other.draw(generator), generator) < 1e-13


def test_readable_rows():
    rows = torch.tensor([[0.6, 0.2, 0.0], [0.6, 0.2, 0.9]]).double()
    assert readable(rows).tolist() == [[3, 1, 0], [0, 0, 1]]
    assert whole(torch.tensor([1.0, 2**0.5]).double()) is None
    assert echelon(torch.zeros(2, 3)).shape == (0, 3)


def test_independent_picks_no_combination():
    picked, (a, b) = Independent(3), torch.eye(3).double()[:2]
    assert [picked.adds(v) for v in (a, b, a - 2 * b, 0 * a)] == [True, True, False, False]
    assert picked.rank == 2
