from fractions import Fraction

import numpy as np
import pytest
import sympy
import torch

import normgeom as ng
from normgeom.norms import summed_inputs
from tests.oracles import normalized

METHODS = {
    "bn": ng.BatchNorm(), "wn": ng.WeightNorm(), "ln": ng.LayerNorm(), "rms": ng.RMSNorm(),
    "ln_input": ng.InputLayerNorm(), "none": ng.NoNorm(),
}  # fmt: skip


@pytest.mark.parametrize("eps", [0.0, 1e-3])
@pytest.mark.parametrize("method", METHODS)
def test_normalize_agrees_with_scalar_loops(method, eps, point):
    weight, data = point
    expected = torch.tensor(normalized(method, weight.tolist(), data.tolist(), eps), dtype=torch.float64)
    torch.testing.assert_close(
        ng.normalize(METHODS[method], weight, data, eps=eps), expected, rtol=1e-13, atol=1e-14
    )


@pytest.mark.parametrize("method", ["bn", "wn", "ln", "rms", "none"])
def test_bias_before_agrees_with_scalar_loops(method, point):
    weight, data = point
    bias = torch.linspace(-1, 1, 5, dtype=torch.float64)
    expected = torch.tensor(
        normalized(method, weight.tolist(), data.tolist(), 0.0, bias.tolist()), dtype=torch.float64
    )
    actual = ng.normalize(METHODS[method], weight, data, bias_before=bias)
    torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("method", METHODS)
def test_one_definition_runs_on_fractions(method):
    weight = [[1, 2], [0, -1], [3, 1]]
    data = [[1, 0], [2, -1], [0, 2], [1, 4]]
    exact = [np.array([[Fraction(v) for v in row] for row in m], dtype=object) for m in (weight, data)]
    mean, variance = METHODS[method].statistics(*exact)
    assert {type(v) for s in (mean, variance) for v in np.ravel(np.asarray(s, object))} <= {Fraction, int}
    z = np.array(ng.normalize(METHODS[method], *exact), dtype=float)
    np.testing.assert_allclose(z, normalized(method, weight, data), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("method", METHODS)
def test_one_definition_runs_on_symbols(method):
    weight = np.array([[sympy.Symbol(f"w{i}{d}") for d in range(2)] for i in range(3)], dtype=object)
    data = np.array([[sympy.Symbol(f"x{n}{d}") for d in range(2)] for n in range(3)], dtype=object)
    values = {s: (k * k + k) % 7 - 2 + k % 3 for k, s in enumerate([*weight.ravel(), *data.ravel()])}
    numbers = [[[int(values[s]) for s in row] for row in m] for m in (weight, data)]
    z = ng.normalize(METHODS[method], weight, data)
    np.testing.assert_allclose(
        [[float(v.subs(values)) for v in row] for row in z],
        normalized(method, *numbers),
        rtol=1e-13,
        atol=1e-14,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", METHODS)
def test_type_is_kept(method, dtype, point):
    assert ng.normalize(METHODS[method], *(t.to(dtype) for t in point), eps=1e-5).dtype == dtype


def test_frozen_statistics_are_those_of_the_data(point):
    frozen = ng.BatchNorm().freeze(*point)
    torch.testing.assert_close(ng.normalize(frozen, *point), ng.normalize(ng.BatchNorm(), *point))
    moved = ng.normalize(frozen, 2 * point[0], point[1])
    expected = (2 * summed_inputs(*point) - frozen.mean) / frozen.variance.sqrt()
    torch.testing.assert_close(moved, expected)


def test_a_norm_of_ones_own_needs_no_base_class(point):
    class Halved:
        def statistics(self, weight, data):
            return 0, 4

    torch.testing.assert_close(ng.normalize(Halved(), *point), summed_inputs(*point) / 2)


def test_constant_row_is_not_a_number():
    z = ng.normalize(ng.LayerNorm(), torch.ones(3, 2), torch.ones(3, 2))
    assert z.isnan().all()


@pytest.mark.parametrize(
    ("weight", "data", "message"),
    [
        (
            torch.ones(3, 2),
            torch.ones(4, 3),
            r"same number of inputs \(axis 1\); got weight \(3, 2\) and data \(4, 3\)",
        ),
        (torch.ones(2, 3), torch.ones(4, 2), "Is weight transposed"),
        (torch.ones(3), torch.ones(4, 3), r"weight must be \(units, inputs\)"),
    ],
)
def test_wrong_shapes(weight, data, message, unchecked):
    with pytest.raises(ValueError, match=message):
        ng.normalize(ng.LayerNorm(), weight, data)


def test_negative_eps(point):
    with pytest.raises(ValueError, match="eps must be a finite number >= 0; got -1"):
        ng.normalize(ng.LayerNorm(), *point, eps=-1.0)
