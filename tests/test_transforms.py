import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import normgeom as ng
from tests.strategies import CASES, INPUTS, UNITS, elements, matrices

OTHERS = (ng.WeightVectorRecenter, ng.CaseRecenter)
ACTIONS = (*ng.TABLE_1, *ng.NEGATIVE_SCALES, *OTHERS)
WEIGHTS, DATA = matrices(UNITS, INPUTS), matrices(CASES, INPUTS)
all_actions = pytest.mark.parametrize("action", ACTIONS, ids=lambda a: a.__name__)

EXPECTED = {
    "WeightMatrixRescale": lambda w, x: (2 * w, x),
    "WeightMatrixRecenter": lambda w, x: (w + torch.tensor([[1.0, 2.0, 3.0]]), x),
    "WeightVectorRescale": lambda w, x: (torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0])) @ w, x),
    "DatasetRescale": lambda w, x: (w, 2 * x),
    "DatasetRecenter": lambda w, x: (w, x + torch.tensor([[1.0, 2.0, 3.0]])),
    "CaseRescale": lambda w, x: (w, torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])) @ x),
    "WeightVectorRecenter": lambda w, x: (w + torch.tensor([[1.0], [2.0], [3.0], [4.0]]), x),
    "CaseRecenter": lambda w, x: (w, x + torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])),
}


def test_table_1_has_the_paper_s_order():
    assert [a.title for a in ng.TABLE_1] == [
        "weight matrix re-scaling", "weight matrix re-centering", "weight vector re-scaling",
        "dataset re-scaling", "dataset re-centering", "single training case re-scaling",
    ]  # fmt: skip


@pytest.mark.parametrize("action", [*ng.TABLE_1, *OTHERS], ids=lambda a: a.__name__)
def test_each_action_is_its_formula(action):
    weight, data = torch.arange(12.0).reshape(4, 3), torch.arange(15.0).reshape(5, 3) - 7
    size = {"units": 4, "inputs": 3, "cases": 5, None: 0}[action.axis]
    element = action(torch.arange(1.0, size + 1) if size else 2.0)
    for moved, expected in zip(element(weight, data), EXPECTED[action.__name__](weight, data), strict=True):
        assert torch.equal(moved, expected)


@all_actions
@given(sample=st.data())
def test_inverse_undoes(action, sample):
    element, weight, data = (sample.draw(s) for s in (elements(action), WEIGHTS, DATA))
    back = element.inverse()(*element(weight, data))
    torch.testing.assert_close(back, (weight, data), rtol=1e-14, atol=1e-14)


@all_actions
@given(sample=st.data())
def test_composition_is_action_after_action(action, sample):
    one, two = sample.draw(elements(action)), sample.draw(elements(action))
    weight, data = sample.draw(WEIGHTS), sample.draw(DATA)
    if action in ng.NEGATIVE_SCALES:  # two negative scales make a positive one: no group of its own
        composed = ng.Composition((one, two))
    else:
        composed = one.then(two)
        assert type(composed) is action
    torch.testing.assert_close(composed(weight, data), two(*one(weight, data)), rtol=1e-14, atol=1e-14)


@given(sample=st.data())
def test_composition_is_associative(sample):
    a, b, c = (sample.draw(elements(sample.draw(st.sampled_from(ng.TABLE_1)))) for _ in range(3))
    weight, data = sample.draw(WEIGHTS), sample.draw(DATA)
    torch.testing.assert_close(
        a.then(b).then(c)(weight, data), a.then(b.then(c))(weight, data), rtol=1e-13, atol=1e-13
    )


def test_equation_6():
    gamma = torch.tensor([1.0, -1.0, 0.5])
    weight, data = torch.arange(12.0).reshape(4, 3), torch.ones(5, 3)
    moved = ng.WeightMatrixRescale(2.5).then(ng.WeightMatrixRecenter(gamma))(weight, data)[0]
    assert torch.equal(moved, 2.5 * weight + gamma)


@all_actions
def test_sampling_is_seeded_and_never_trivial(action, point):
    one, two = (action.sample(*point, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert one == two
    other = action.sample(*point, generator=torch.Generator().manual_seed(4))
    assert one != other
    moved = one(*point)
    assert not (torch.equal(moved[0], point[0]) and torch.equal(moved[1], point[1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@all_actions
def test_type_is_kept(action, dtype, point, generator):
    element = action.sample(*point, generator=generator)
    assert [t.dtype for t in element(*(t.to(dtype) for t in point))] == [dtype, dtype]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ng.WeightMatrixRescale(0.0), "must differ from 0; got 0.0"),
        (lambda: ng.WeightMatrixRescale(float("inf")), "must be finite; got inf"),
        (lambda: ng.WeightMatrixRecenter([1.0, float("nan")]), "gamma must be finite"),
        (lambda: ng.CaseRescale(2.0), r"delta must be one number for each of the cases; got shape \(\)"),
        (lambda: ng.DatasetRescale([1.0, 2.0]), r"delta must be a number; got shape \(2,\)"),
        (lambda: ng.DatasetNegativeRescale(2.0), "must be negative; got 2.0"),
        (lambda: ng.WeightMatrixRecenter([1.0, 2.0])(torch.ones(3, 3), torch.ones(3, 3)),
         r"one number for each of the 3 inputs; got shape \(2,\)"),
    ],
)  # fmt: skip
def test_impossible_elements(make, message):
    with pytest.raises(ValueError, match=message):
        make()


KERNEL, IMAGE = torch.arange(48.0).reshape(4, 3, 2, 2), torch.arange(60.0).reshape(5, 3, 2, 2) - 7


def test_actions_on_a_convolution():
    filters, channels, units = torch.randn(3, 2, 2), torch.randn(3), torch.rand(4) + 1
    cases = torch.rand(5) + 1
    for element, expected in [
        (ng.WeightMatrixRecenter(filters), (KERNEL + filters, IMAGE)),
        (ng.WeightVectorRescale(units), (KERNEL * units[:, None, None, None], IMAGE)),
        (ng.WeightVectorRecenter(units), (KERNEL + units[:, None, None, None], IMAGE)),
        (ng.DatasetRecenter(channels), (KERNEL, IMAGE + channels[None, :, None, None])),
        (ng.DatasetShift(filters), (KERNEL, IMAGE + filters)),
        (ng.CaseRescale(cases), (KERNEL, IMAGE * cases[:, None, None, None])),
    ]:
        torch.testing.assert_close(element(KERNEL, IMAGE), expected)


@pytest.mark.parametrize("action", [*ACTIONS, ng.DatasetShift], ids=lambda a: a.__name__)
def test_elements_are_drawn_for_a_convolution(action, generator):
    element = action.sample(KERNEL, IMAGE, generator=generator)
    back = element.inverse()(*element(KERNEL, IMAGE))
    torch.testing.assert_close(back, (KERNEL, IMAGE), rtol=1e-4, atol=1e-3)


def test_a_shift_that_does_not_fit_an_image():
    with pytest.raises(ValueError, match=r"each of the 3 x 2 x 2 inputs; got shape \(3,\)"):
        ng.DatasetShift([1.0, 2.0, 3.0])(KERNEL, IMAGE)
    with pytest.raises(ValueError, match=r"each of the inputs; got shape \(3, 2, 2\)"):
        ng.DatasetRecenter(torch.ones(3, 2, 2))
