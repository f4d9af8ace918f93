"""Laws under Hypothesis: an invariance holds at every well-posed point, and what is not one is refuted."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import normgeom as ng
from normgeom.invariance import exact
from tests.oracles import TABLE_1
from tests.strategies import CASES, INPUTS, UNITS, elements, matrices

CELLS = [(n, a, h) for n, row in TABLE_1.items() for a, h in zip(ng.TABLE_1, row, strict=True)]


def well_posed(norm, weight, data):
    variance = norm.statistics(weight, data)[1]
    return isinstance(variance, int) or float(variance.min()) > 1e-3


@pytest.mark.parametrize(
    ("name", "action"), [(n, a) for n, a, holds in CELLS if holds], ids=lambda v: getattr(v, "__name__", v)
)
@given(draw=st.data())
def test_invariance_holds_at_every_point(name, action, draw):
    weight, data = draw.draw(matrices(UNITS, INPUTS)), draw.draw(matrices(CASES, INPUTS))
    norm, element = getattr(ng, name)(), draw.draw(elements(action))
    assume(well_posed(norm, weight, data) and well_posed(norm, *element(weight, data)))
    assert ng.invariance_error(norm, element, weight, data) < 1e-11


@pytest.mark.parametrize(
    ("name", "action"),
    [(n, a) for n, a, holds in CELLS if not holds],
    ids=lambda v: getattr(v, "__name__", v),
)
@given(seed=st.integers(0, 2**31))
def test_what_is_not_invariant_is_refuted_by_every_seed(name, action, seed):
    generator = torch.Generator().manual_seed(seed)
    verdict = exact.judge(ng.as_layer(getattr(ng, name)), action, generator=generator)
    assert verdict.kind is ng.Kind.NOT_INVARIANT
    assert verdict.witness is not None


@given(power=st.integers(-20, 20), draw=st.data())
def test_powers_of_two_are_bit_exact(power, draw):
    weight, data = draw.draw(matrices(UNITS, INPUTS)), draw.draw(matrices(CASES, INPUTS))
    assume(well_posed(ng.LayerNorm(), weight, data))
    for dtype in (torch.float64, torch.float32):
        scaled, plain = (
            ng.normalize(ng.LayerNorm(), (weight * s).to(dtype), data.to(dtype)) for s in (2.0**power, 1)
        )
        assert torch.equal(scaled, plain)
