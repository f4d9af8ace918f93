"""Rules against floating point, and seeded wrong rules that must be found out."""

import decimal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normgeom as ng
from normgeom.invariance.graph import engine
from normgeom.invariance.graph.abstract import axes
from normgeom.invariance.graph.abstract import rules as forms
from normgeom.invariance.graph.digits import Digits, NoValue, precision, simplest
from normgeom.invariance.graph.rules import RULES
from normgeom.invariance.graph.samples import outputs_at, rational_point
from normgeom.invariance.graph.symbols import Symbols
from tests.invariance.graph.layers import exported, verdicts

FUNCTIONS = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "elu": F.elu,
    "hardtanh": F.hardtanh,
    "log softmax": lambda x: F.log_softmax(x, 1),
    "cumsum": lambda x: x.cumsum(1),
    "norm 1": lambda x: x / x.norm(p=1, dim=1, keepdim=True),
    "norm 3": lambda x: x / x.norm(p=3, dim=1, keepdim=True),
    "pad": lambda x: F.pad(x, (1, 2), value=0.5),
    "flip": lambda x: x.flip(1),
    "stack": lambda x: torch.stack([x, -x], 1),
    "chunk": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
    "where": lambda x: torch.where(x > 0.1, x, torch.sign(x)),
    "masked": lambda x: x.masked_fill(x < 0, -3.0),
    "power": lambda x: (x.abs() + 1) ** 0.3 + torch.exp2(x.clamp(-1, 1)),
    "addmm": lambda x: torch.addmm(x, x, torch.ones(5, 5, dtype=x.dtype), beta=0.5, alpha=2.0),
    "var": lambda x: x / x.var(1, keepdim=True, correction=0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_rule_gives_what_torch_gives(name):
    layer, seen = exported(lambda weight, data: FUNCTIONS[name](data @ weight.T))
    weight, data = rational_point(seen, torch.Generator().manual_seed(0))
    with precision():
        exact = outputs_at(seen, weight, data).astype(float)
    floats = layer(*(torch.tensor(a.astype(float)) for a in (weight, data)))
    np.testing.assert_allclose(exact, floats.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "module",
    [
        nn.Conv1d(2, 4, 3, stride=2, padding=1, dilation=2, groups=2),
        nn.Conv2d(2, 3, (2, 3), padding=(0, 1)),
        nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1),
        nn.Sequential(nn.Conv2d(2, 3, 2), nn.AvgPool2d(2, stride=1)),
    ],
)
def test_convolutions_are_torch_s(module):
    layer, seen = exported(module)
    weight, data = rational_point(seen, torch.Generator().manual_seed(0))
    with precision():
        exact = outputs_at(seen, weight, data).astype(float)
    floats = layer(*(torch.tensor(a.astype(float)) for a in (weight, data)))
    np.testing.assert_allclose(exact, floats.detach().numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("operator", ["aten.mean", "aten.rsqrt", "aten.mul"])
def test_a_wrong_rule_is_found_out(operator, monkeypatch):
    """A rule that is 0.1 % off gives other outputs than the layer."""
    right = RULES[operator]
    off = lambda a, *args, **options: right(a, *args, **options) * a.constant(1.001)  # noqa: E731
    monkeypatch.setitem(RULES, operator, off)
    for verdict in verdicts(engine.judge, *exported(nn.LayerNorm(5)), ng.TABLE_1):
        assert verdict.kind is ng.Kind.UNDECIDED
        assert "the rules give other outputs than the layer" in verdict.reason
        assert operator in verdict.reason


def test_a_wrong_abstract_rule_is_a_disagreement(monkeypatch):
    """A sum that does not look at its axes would call layer norm invariant to scales of single units."""
    monkeypatch.setitem(forms.RULES, "aten.mean", lambda call: forms.UNCHANGED)
    monkeypatch.setitem(forms.RULES, "aten.sub", lambda call: forms.UNCHANGED)
    with pytest.raises(ng.EnginesDisagree, match=r"\[abstract\]"):
        ng.check(nn.LayerNorm(5), [ng.WeightVectorRescale])


def test_numbers_of_50_digits_leave_the_context_alone():
    before = decimal.getcontext().prec
    ng.check(nn.LayerNorm(5), [ng.CaseRescale], engines=["graph"])
    assert decimal.getcontext().prec == before
    with precision():
        assert abs(Digits().function("sqrt", Digits().number(2)) ** 2 - 2) < decimal.Decimal("1e-48")


def test_a_constant_is_meant_as_it_is_written():
    assert [str(simplest(v)) for v in (0.2, 1 / 3, 1e-12, 2.5)] == ["1/5", "1/3", "1/1000000000000", "5/2"]


@pytest.mark.parametrize("name", ["sqrt", "log"])
def test_no_real_value_is_said_to_be_none(name):
    with precision(), pytest.raises(NoValue):
        Digits().function(name, Digits().number(-1))


def test_a_view_that_cuts_across_an_axis_is_lost():
    along = axes.fresh((4, 6), [1])
    assert axes.reshaped(along, (4, 6), (4, 2, 3)) == ((1, 1, 2, 3), (2, 1, 3, 1))
    assert axes.reshaped(axes.reshaped(along, (4, 6), (4, 2, 3)), (4, 2, 3), (4, 6)) == along
    assert axes.reshaped(along, (4, 6), (3, 8)) is None
    assert axes.reshaped(axes.fresh((4, 6), [0]), (4, 6), (24,)) == ((0, 6, 4, 1),)


VIEWS = [(4, 6), (24,), (2, 2, 6), (2, 3, 4), (6, 4), (2, 12), (3, 8), (8, 3), (2, 2, 2, 3), (12, 2), (1, 24)]


@pytest.mark.parametrize("old", VIEWS)
@pytest.mark.parametrize("new", VIEWS)
def test_an_index_map_names_the_entry_that_it_meets(old, new):
    """The oracle is the view of an array of indices."""
    for axis in range(len(old)):
        indices = np.indices(old)[axis].reshape(new)
        along = axes.reshaped(axes.fresh(old, [axis]), old, new)
        for at in np.ndindex(*new) if along is not None else ():
            assert sum(s * ((at[a] // r) % n) for a, r, n, s in along) == indices[at]


def test_canonical_roots():
    symbols = Symbols(["x", "y"], ["d"])
    (x, y), (d,) = symbols.free, symbols.positive
    square = x**2 + y**2
    assert symbols.root(d**2 * square) == d * symbols.root(square)
    assert symbols.reduced(symbols.root(square) ** 2) == square
    assert symbols.divide(d * x, d * square) == symbols.divide(x, square)
    assert symbols.larger(d * x, d * y) == d * symbols.larger(x, y)
    assert symbols.larger(x + 1, y + 1) == symbols.larger(x, y) + 1
    assert symbols.function("abs", -x) == symbols.function("abs", x)
    assert symbols.function("tanh", x) != symbols.function("tanh", d * x)
