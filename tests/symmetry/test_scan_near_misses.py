"""Each symmetry by itself, and models that just miss it: eps, a path around a norm, GELU for relu."""

import pytest
import torch
from torch import nn

import normgeom as ng
from tests.symmetry.scanned import BATCH, Fn, Residual, TwoOutputs, seeded


def joint(*layers, batch=BATCH, **options):
    model = seeded(lambda: nn.Sequential(*layers))
    return [one.label for one in ng.scan(model, batch, **options).joint]


PAIR = ["0.weight^+1 0.bias^+1 2.weight^-1"]


@pytest.mark.parametrize(
    ("between", "wanted"),
    [
        (nn.ReLU(), PAIR),
        (nn.LeakyReLU(), PAIR),
        (nn.PReLU(6), PAIR),
        (Fn(torch.abs), PAIR),
        (nn.Identity(), PAIR),
        (Fn(lambda a: a.relu().square()), ["0.weight^+1 0.bias^+1 2.weight^-2"]),
        (nn.GELU(), []),
        (nn.Tanh(), []),
        (Fn(lambda a: a.clamp(-1, 1)), []),
        (nn.ReLU6(), []),
        (Fn(lambda a: a.clamp(-40, 40)), []),
        (nn.Threshold(0.1, 0.0), []),
        (nn.Hardswish(), []),
        (Fn(lambda a: a * (a >= a.topk(3, -1)[0][..., -1:])), PAIR),
        (Fn(lambda a: (a * 8).round() / 8), []),
        (Fn(lambda a: a.relu() + 1e-6), []),
        (Fn(lambda a: a.relu() + 1e-8 * a.square()), []),
        (nn.Softplus(beta=30), []),
    ],
)
def test_what_lies_between_two_layers(between, wanted):
    assert joint(nn.Linear(4, 6), between, nn.Linear(6, 2)) == wanted


def evaluated(model):
    """In evaluation, with running statistics of a batch."""
    model(BATCH)
    return model.eval()


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (lambda: nn.Linear(4, 3), BATCH),
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2)), BATCH),
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.Softmax(-1), nn.Linear(6, 6), nn.Tanh()), BATCH),
        (lambda: nn.GRU(4, 3), BATCH[:, None]),
        (lambda: evaluated(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh())), BATCH),
    ],
)
def test_models_that_must_come_out_empty(model, batch):
    found = ng.scan(seeded(model), batch)
    assert (found.nullity, found.single, found.joint, found.findings) == (0, (), (), ())


def test_running_means_of_zero_leave_a_gain_pair():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh()).eval()
    (pair,) = ng.scan(model, BATCH).joint
    assert set(pair.exponents) == {"0.weight", "0.bias", "1.weight"}


def test_a_small_residual_path_around_a_norm():
    found = ng.scan(seeded(lambda: Residual(0.0)), BATCH)
    assert found["a.weight"].scale.holds
    found = ng.scan(seeded(lambda: Residual(1e-7)), BATCH)
    assert not found["a.weight"].scale.holds
    assert found["a.weight"].scale.deviation > found["a.weight"].scale.tolerance


def test_an_auxiliary_output_and_a_selector():
    model = seeded(TwoOutputs)
    assert ng.scan(model, BATCH).nullity == 0
    picked = ng.scan(model, {"x": BATCH}, select=lambda out: out.main)
    assert [one.label for one in picked.joint] == ["a.weight^+1 a.bias^+1 c.weight^-1"]


def test_eps_of_a_module_a_function_and_the_code():
    def normed(eps):
        return lambda a: (a - a.mean(-1, keepdim=True)) / (a.var(-1, keepdim=True) + eps).sqrt()

    layers = {
        "module": nn.LayerNorm(6),
        "function": Fn(lambda a: nn.functional.layer_norm(a, (6,), eps=1e-4)),
        "code": Fn(normed(1e-4)),
        "none": Fn(normed(0.0)),
    }
    found = {
        name: ng.scan(seeded(lambda n=n: nn.Sequential(nn.Linear(4, 6, bias=False), n, nn.Tanh())), BATCH)
        for name, n in layers.items()
    }
    scales = {name: one["0.weight"].scale for name, one in found.items()}
    assert {name: one.symbol for name, one in scales.items()} == {
        "module": "≈",
        "function": "≈",
        "code": "≈",
        "none": "✓",
    }
    assert [name for name, one in scales.items() if one.holds] == ["module", "function", "none"]
    assert (scales["code"].fading, scales["module"].breaking > 1e-7) == (2.0, True)
    assert "an eps in the code" in found["code"].findings[0]


def test_gradients_of_another_function_are_a_finding():
    detached = Fn(lambda a: a / a.std(-1, keepdim=True).detach())
    found = ng.scan(seeded(lambda: nn.Sequential(nn.Linear(4, 6, bias=False), detached, nn.Tanh())), BATCH)
    assert [one.block for one in found.single] == ["0.weight"]
    assert not found["0.weight"].scale.confirmed
    assert found.findings[0].startswith("the gradients of the model are not the slopes of its function")
    assert found.findings[1].startswith("0.weight, scale: the function is unchanged, its slope is")


def test_joint_symmetries_do_not_need_the_gradients():
    straight_through = Fn(lambda a: a.detach().relu() + a - a.detach())
    copied = Fn(lambda a: a.relu() + 0.3 * a.relu().detach())
    assert joint(nn.Linear(4, 6), copied, nn.Linear(6, 2)) == PAIR
    assert joint(nn.Linear(4, 6), straight_through, nn.Linear(6, 2)) == PAIR


def test_a_function_without_a_backward_pass():
    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(context, a):
            return a.relu()

    found = ng.scan(seeded(lambda: nn.Sequential(nn.Linear(4, 6), Fn(Forward.apply), nn.Linear(6, 2))), BATCH)
    assert [one.label for one in found.joint] == PAIR
    assert found.findings[0].startswith("the gradients of the model are not the slopes of its function")


@pytest.mark.parametrize(
    ("norm", "bias", "single", "joint"),
    [
        (nn.LayerNorm(6), False, ["0.weight"], []),
        (nn.LayerNorm(6), True, [], ["0.weight^+1 0.bias^+1"]),
        (nn.RMSNorm(6, eps=1e-6), False, ["0.weight"], []),
        (nn.RMSNorm(6, eps=1e-6), True, [], ["0.weight^+1 0.bias^+1"]),
        (nn.BatchNorm1d(6), True, ["0.weight", "0.bias"], []),
    ],
)
def test_a_bias_before_a_norm(norm, bias, single, joint):
    found = ng.scan(seeded(lambda: nn.Sequential(nn.Linear(4, 6, bias=bias), norm, nn.Tanh())), BATCH)
    assert [one.block for one in found.single] == single
    assert [one.label for one in found.joint] == joint
    assert all(one.rule == "one norm" for one in found.joint)
