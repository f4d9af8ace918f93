import pytest
import torch
from torch import nn

import normgeom as ng
from normgeom.invariance import exact, numeric, symbolic
from normgeom.invariance.settling import settle
from tests.oracles import TABLE_1

ENGINES = {"numeric": numeric.judge, "exact": exact.judge, "symbolic": symbolic.judge}
NAMED = [(name, action) for name in TABLE_1 for action in ng.TABLE_1]
every_engine = pytest.mark.parametrize("engine", ENGINES)


def judge(engine, layer, action, seed=0):
    return ENGINES[engine](ng.as_layer(layer), action, generator=torch.Generator().manual_seed(seed))


@every_engine
@pytest.mark.parametrize(("name", "action"), NAMED, ids=lambda v: getattr(v, "__name__", v))
def test_every_cell_on_every_engine(engine, name, action):
    """SEM-15: the paper's rows and RMS norm's, at eps = 0, for scales > 0 and statistics of the data."""
    verdict = judge(engine, getattr(ng, name), action)
    assert verdict.holds == TABLE_1[name][ng.TABLE_1.index(action)]
    assert verdict.kind in (ng.Kind.INVARIANT, ng.Kind.NOT_INVARIANT)


@every_engine
@pytest.mark.parametrize("name", ["BatchNorm", "WeightNorm", "LayerNorm", "RMSNorm"])
def test_one_shift_of_all_inputs_of_a_case_is_no_invariance(engine, name):
    """SEM-15: it is none of any method, unless the rows of W sum alike."""
    assert judge(engine, getattr(ng, name), ng.CaseRecenter).kind is ng.Kind.NOT_INVARIANT
    weight = torch.tensor([[1.0, 2.0, 0.0], [0.0, 2.5, 0.5], [4.0, -2.0, 1.0]])
    (alike,) = ng.check(getattr(ng, name), [ng.CaseRecenter], engines=["numeric"], weight=weight.double())
    assert alike.holds == (name == "LayerNorm")


@pytest.mark.parametrize(("name", "action"), NAMED, ids=lambda v: getattr(v, "__name__", v))
def test_every_cell_has_evidence(name, action):
    (verdict,) = ng.check(getattr(ng, name), [action])
    assert set(verdict.engines) == set(ENGINES)
    if verdict.holds:
        assert "z' = z" in verdict.proof.text
        assert r"\Rightarrow" in verdict.proof.latex
    else:
        assert _really_differs(getattr(ng, name)(), verdict.witness)


def _really_differs(norm, witness):
    """Recompute both outputs of a rational witness with exact roots."""
    before = ng.normalize(norm, witness.weight, witness.data)[witness.case, witness.unit]
    after = ng.normalize(norm, *witness.transform(witness.weight, witness.data))[witness.case, witness.unit]
    return before == witness.before and after == witness.after and before != after


@every_engine
@pytest.mark.parametrize("scale", ng.NEGATIVE_SCALES, ids=lambda a: a.__name__)
@pytest.mark.parametrize("name", ["BatchNorm", "WeightNorm", "LayerNorm", "RMSNorm"])
def test_a_negative_scale_flips_what_a_positive_one_keeps(engine, name, scale):
    positive = scale.__mro__[1]
    verdict = judge(engine, getattr(ng, name), scale)
    assert verdict.kind is ng.Kind.NOT_INVARIANT
    kept = TABLE_1[name][ng.TABLE_1.index(positive)]
    assert (verdict.flips and verdict.degree == 0) == kept


@every_engine
@pytest.mark.parametrize(
    ("norm", "action", "degree"),
    [
        (ng.NoNorm, ng.WeightMatrixRescale, 1),
        (ng.NoNorm, ng.CaseRescale, 1),
        (ng.WeightNorm, ng.DatasetRescale, 1),
        (ng.WeightNorm, ng.CaseRescale, 1),
        (ng.InputLayerNorm, ng.WeightVectorRescale, 1),
        (ng.LayerNorm, ng.WeightVectorRescale, None),
        (ng.BatchNorm, ng.CaseRescale, None),
        (ng.LayerNorm, ng.DatasetRecenter, None),
    ],
)
def test_degree(engine, norm, action, degree):
    assert judge(engine, norm, action).degree == degree


@every_engine
@pytest.mark.parametrize("action", ng.TABLE_1, ids=lambda a: a.__name__)
def test_frozen_statistics_leave_nothing(engine, action, generator):
    weight, data = (torch.randint(-3, 4, s, generator=generator).double() for s in ((3, 3), (8, 3)))
    assert judge(engine, ng.frozen_batch_norm(weight, data), action).kind is ng.Kind.NOT_INVARIANT


@every_engine
@pytest.mark.parametrize("name", ["BatchNorm", "WeightNorm", "LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("action", ng.TABLE_1, ids=lambda a: a.__name__)
def test_eps_breaks_only_re_scaling(engine, name, action):
    verdict = judge(engine, ng.as_layer(getattr(ng, name), eps=1e-5), action)
    if not TABLE_1[name][ng.TABLE_1.index(action)]:
        assert verdict.kind is ng.Kind.NOT_INVARIANT
    else:
        assert verdict.kind is (ng.Kind.INVARIANT if "Recenter" in action.__name__ else ng.Kind.UP_TO_EPS)


VECTOR = torch.tensor([0.5, -1.0, 0.75])
RESCALINGS = (ng.WeightMatrixRescale, ng.DatasetRescale, ng.CaseRescale)


@every_engine
@pytest.mark.parametrize("action", RESCALINGS, ids=lambda a: a.__name__)
@pytest.mark.parametrize(
    ("norm", "bias", "holds"),
    [
        (ng.LayerNorm, 0.75, True),
        (ng.LayerNorm, torch.full((3,), 0.75), True),
        (ng.LayerNorm, VECTOR, False),
        (ng.RMSNorm, 0.75, False),
    ],
)
def test_a_bias_before_layer_norm(engine, norm, bias, holds, action):
    assert judge(engine, ng.as_layer(norm, bias_before=bias), action).holds == holds


@every_engine
def test_a_bias_before_the_others(engine):
    assert judge(engine, ng.as_layer(ng.BatchNorm, bias_before=VECTOR), ng.WeightVectorRescale).holds
    assert judge(engine, ng.as_layer(ng.LayerNorm, bias_before=VECTOR), ng.WeightMatrixRecenter).holds
    for action in (ng.WeightMatrixRescale, ng.WeightVectorRescale):
        assert not judge(engine, ng.as_layer(ng.WeightNorm, bias_before=0.75), action).holds


@every_engine
def test_a_unit_without_gain_shows_nothing(engine):
    silent = ng.as_layer(ng.LayerNorm, gain=torch.zeros(3))
    assert judge(engine, silent, ng.WeightVectorRescale).kind is ng.Kind.UNDECIDED
    deaf = ng.as_layer(ng.NoNorm, gain=torch.tensor([1.0, 1.0, 0.0]))
    assert judge(engine, deaf, ng.WeightVectorRescale(torch.tensor([1.0, 1.0, 2.0]))).holds


def test_symbolic_works_for_a_norm_that_divides():
    class PerInput:
        """A variance that is a quotient of statistics: rational, not polynomial."""

        def statistics(self, weight, data):
            square = (data**2).mean(axis=1, keepdims=True)
            return 0, square**2 / (square + (weight**2).mean(axis=(0, 1), keepdims=True) * square)

    assert judge("symbolic", PerInput(), ng.DatasetRescale).kind is ng.Kind.INVARIANT
    assert judge("symbolic", PerInput(), ng.WeightMatrixRescale).kind is ng.Kind.NOT_INVARIANT


@pytest.mark.parametrize("engine", ["exact", "symbolic"])
def test_what_an_exact_engine_cannot_see_is_undecided(engine):
    class Root:
        def statistics(self, weight, data):
            return 0, ((data @ weight.T) ** 2).mean(axis=1, keepdims=True) ** 0.5

    class Torch:
        def statistics(self, weight, data):
            return 0, torch.var(data @ weight.T, 1, keepdim=True)

    for layer in (Root(), Torch(), nn.LayerNorm(3), lambda w, x: x @ w.T):
        verdict = judge(engine, layer, ng.WeightMatrixRescale)
        assert verdict.kind is ng.Kind.UNDECIDED
        assert engine in verdict.reason


@pytest.mark.parametrize("engine", ["exact", "symbolic"])
def test_an_action_of_ones_own_is_seen_by_the_numeric_engine_only(engine):
    class Transpose:
        title = "permuted inputs"

        def __call__(self, weight, data):
            return weight.flip(1), data.flip(1)

    assert judge(engine, ng.LayerNorm, Transpose()).kind is ng.Kind.UNDECIDED
    (verdict,) = ng.check(ng.LayerNorm(), [Transpose()])
    assert (verdict.kind, verdict.engines) == (ng.Kind.INVARIANT, ("numeric",))


def test_engines_that_disagree_raise():
    yes, no = judge("exact", ng.LayerNorm, ng.CaseRescale), judge("numeric", ng.BatchNorm, ng.CaseRescale)
    with pytest.raises(ng.EnginesDisagree, match=r"(?s)\[exact\].*\[numeric\]"):
        settle([yes, no])


def test_statistics_that_depend_on_the_kind_of_array_are_found_out():
    class TwoFaced:
        def statistics(self, weight, data):
            summed = data @ weight.T
            centre = summed.mean(axis=1, keepdims=True) if isinstance(summed, torch.Tensor) else 0
            return centre, ((summed - centre) ** 2).mean(axis=1, keepdims=True)

    with pytest.raises(ng.EnginesDisagree):
        ng.check(TwoFaced(), [ng.WeightMatrixRecenter])


def test_same_seed_same_verdict():
    rows = [ng.check(ng.LayerNorm(), generator=torch.Generator().manual_seed(7)) for _ in range(2)]
    assert [v.as_row() for v in rows[0]] == [v.as_row() for v in rows[1]]


def test_nothing_global_is_touched():
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    ng.check(ng.BatchNorm())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() is dtype


def test_a_perfect_square_under_the_root_is_seen():
    """SYM-01: sigma = mean a^2 is the root of its square, so re-scaling by delta gives delta^-1."""

    class Square:
        def statistics(self, weight, data):
            return 0, ((data @ weight.T) ** 2).mean(axis=1, keepdims=True) ** 2

    assert judge("symbolic", Square(), ng.WeightMatrixRescale).degree == -1


def test_a_root_keeps_the_sign_of_the_scale():
    """SYM-02: sqrt(delta^2) is |delta|: a positive scale cancels, a negative one leaves its sign."""
    verdicts = [judge("symbolic", ng.RMSNorm, a) for a in (ng.CaseRescale, ng.CaseNegativeRescale)]
    assert [(v.holds, v.flips) for v in verdicts] == [(True, False), (False, True)]


def test_a_proof_at_eight_units_and_a_refusal_beyond():
    """SYM-05: identities of polynomials do not hang; where they would take long, that is said."""
    sizes = {units: ng.as_layer(ng.LayerNorm, bias_before=torch.full((units,), 0.5)) for units in (8, 64)}
    assert judge("symbolic", sizes[8], ng.WeightMatrixRescale).proof.units == 8
    verdict = judge("symbolic", sizes[64], ng.WeightMatrixRescale)
    assert verdict.kind is ng.Kind.UNDECIDED
    assert "ask for fewer units" in verdict.reason
