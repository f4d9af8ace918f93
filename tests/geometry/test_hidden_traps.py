"""Models and arguments that gave a wrong number without an error, or an error without a reason."""

import pytest
import torch
from torch import nn

import normgeom as ng

FAMILY = ng.Categorical()
X = torch.linspace(-2, 2, 15, dtype=torch.float64).reshape(5, 3).sin()


def network(*layers):
    torch_state = torch.get_rng_state()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), *layers, nn.Linear(4, 3)).double()
    torch.set_rng_state(torch_state)
    return net, dict(net.named_parameters())


@pytest.mark.parametrize("targets", [[5, 6, 7, 5, 6], [-9] * 5, [0, 1, 2, 0, 3]])
def test_targets_that_the_family_does_not_have(targets):
    with pytest.raises(ValueError, match="class indices must lie in"):
        ng.empirical_fisher(*network(), X, torch.tensor(targets), family=FAMILY)


def test_more_targets_than_cases():
    with pytest.raises(ValueError, match="one target a case; got 9 for 5 cases"):
        ng.empirical_fisher(*network(), X, torch.zeros(9, dtype=torch.long), family=FAMILY)


def test_a_random_model_has_no_divergence():
    net, params = network(nn.Dropout())
    with pytest.raises(ValueError, match="must be deterministic"):
        ng.kl_divergence(net, params, X, params, family=FAMILY)


class DynamicRange(nn.Module):
    """Divides by the largest output of the batch, if that is large: cases couple through an outlier."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4, dtype=torch.float64)

    def forward(self, x):
        out = self.linear(x)
        return out / out.abs().max().clamp(min=10.0)


def test_coupling_through_a_case_that_is_not_probed():
    model, x = (
        DynamicRange(),
        torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    )
    x[5] *= 60
    params = dict(model.named_parameters())
    found = ng.fisher(model, params, x, family=FAMILY).matrix
    wanted = ng.fisher(model, params, x, family=FAMILY, route="batch").matrix
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-15)


def test_a_layer_whose_batching_rule_is_wrong():
    net, params = network(nn.PReLU())
    found = ng.fisher(net, params, X, family=FAMILY).matrix
    wanted = ng.fisher(net, params, X, family=FAMILY, route="loop").matrix
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-15)


def test_power_laws_in_float32():
    glm = ng.NormalizedGLM(ng.LayerNorm(), FAMILY)
    params = glm.init(3, 4, generator=torch.Generator().manual_seed(0))
    found = ng.scaling_exponents(glm, params, X.float())["weight", "weight"]
    assert found.exponent == pytest.approx(-2, abs=1e-4)


def test_an_operator_takes_the_parameters_themselves():
    net, params = network()
    operator = ng.FisherOperator(net, params, X, family=FAMILY)
    product = operator @ params
    assert not any(part.requires_grad for part in product.values())
    with pytest.raises(ValueError, match=r"must have the names 0\.weight"):
        operator @ {"0.weight": params["0.weight"]}


INFINITE = X.clone()
INFINITE[2, 1] = torch.inf
MEASURES = {
    "fisher": lambda *a: ng.fisher(*a, family=FAMILY),
    "per example": lambda *a: ng.per_example_fisher(*a, family=FAMILY),
    "diagonal": lambda *a: ng.fisher_diagonal(*a, family=FAMILY),
    "trace": lambda *a: ng.fisher_trace(*a, family=FAMILY),
    "operator": lambda *a: ng.FisherOperator(*a, family=FAMILY),
    "operator, graph": lambda *a: ng.FisherOperator(*a, family=FAMILY, memory=0).to_dense(),
    "curvature": lambda *a: ng.curvature(*a, a[1], family=FAMILY),
    "KL": lambda *a: ng.kl_divergence(*a, a[1], family=FAMILY),
}


@pytest.mark.parametrize("measure", MEASURES)
def test_outputs_that_are_not_finite_in_one_case_of_many(measure):
    data = torch.cat([X, INFINITE, X, X])
    with pytest.raises(ValueError, match=r"Categorical: eta must be finite; got \d+ values"):
        MEASURES[measure](*network(), data)


@pytest.mark.parametrize("measure", ["fisher", "per example", "diagonal", "trace", "operator"])
def test_derivatives_that_are_not_finite_in_one_case_of_many(measure):
    model = lambda p, x: (x * p["w"]).square().sum(1, keepdim=True).sqrt() * torch.ones(3).to(x)  # noqa: E731
    data = torch.cat([X.abs() + 1, X[2:3] * 0, X.abs() + 1, X.abs() + 1])
    with pytest.raises(ValueError, match="the derivatives must be finite, but those in w are not"):
        MEASURES[measure](model, {"w": torch.ones(3).double()}, data)


def test_outputs_that_leave_the_domain_in_one_case_of_many():
    model, params = (lambda p, x: x[:, :1] * p["w"]), {"w": torch.ones(1).double()}
    x = -1 - X.abs().repeat(4, 1)
    x[6] *= -1
    with pytest.raises(ValueError, match="Gamma: the natural parameter must be negative"):
        ng.fisher(model, params, x, family=ng.Gamma())


class Cut(nn.Linear):
    """A layer whose outputs autograd does not see."""

    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


@pytest.mark.parametrize("measure", [m for m in MEASURES if m != "KL"])
def test_a_model_without_derivatives(measure):
    model = Cut(3, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="must have a derivative in its parameters; they move with them"):
        MEASURES[measure](model, dict(model.named_parameters()), X)


def test_a_parameter_that_is_not_used_has_no_information():
    model, params = (lambda p, x: x), {"w": torch.ones(2).double()}
    assert not ng.fisher(model, params, X, family=FAMILY).matrix.any()


def test_noise_of_the_model_s_own_is_no_divergence():
    model = lambda p, x: x * p["w"] + torch.randn(3, dtype=x.dtype)  # noqa: E731
    with pytest.raises(ValueError, match="must be deterministic"):
        ng.kl_divergence(
            model, {"w": torch.ones(3).double()}, X, {"w": torch.ones(3).double()}, family=FAMILY
        )


def test_a_step_of_a_model_with_frozen_layers():
    net, params = network()
    net[0].requires_grad_(False)
    after = {name: value.detach() + value.requires_grad * value.detach() for name, value in params.items()}
    found = ng.step_in_nats(net, params, X, after, family=FAMILY)
    step = {name: after[name] - params[name].detach() for name in ("1.weight", "1.bias")}
    assert found.quadratic == pytest.approx(float(ng.curvature(net, params, X, step, family=FAMILY)) / 2)
    assert found.kl > 0
    with pytest.raises(
        ValueError, match=r"got 0\.bias, 0\.weight, which the model does not have, or has frozen"
    ):
        ng.curvature(net, params, X, after, family=FAMILY)


WRONG = {
    "dict": ([torch.ones(4, 3)], TypeError, "must be a dict of tensors with names of parameters; got list"),
    "tensor": ({"0.weight": 1.0}, TypeError, r"\['0.weight'\] must be a tensor; got float"),
    "finite": ({"0.bias": torch.full((4,), torch.nan)}, ValueError, r"\['0.bias'\] must be finite"),
    "shape": ({"0.bias": torch.ones(3)}, ValueError, r"must have the parameter's shape \(4,\); got \(3,\)"),
}


@pytest.mark.parametrize(("given", "kind", "message"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize(
    "measure", [ng.curvature, ng.kl_divergence, ng.step_in_nats, ng.kl_against_quadratic]
)
def test_what_is_no_direction(measure, given, kind, message):
    with pytest.raises(kind, match=message):
        measure(*network(), X, given, family=FAMILY)


def test_what_is_read_more_than_once_and_sizes_that_are_none():
    net, params = network()
    with pytest.raises(TypeError, match="an iterator only once"):
        ng.kl_against_quadratic(net, params, iter([X]), params, family=FAMILY)
    with pytest.raises(ValueError, match=r"sizes must be one or more finite numbers above 0; got \(\)"):
        ng.kl_against_quadratic(net, params, X, params, family=FAMILY, sizes=())


def test_tensors_without_values_and_what_is_no_tensor():
    net, params = network()
    with pytest.raises(ValueError, match=r"data must have values; got a tensor on the device meta"):
        ng.fisher(net, params, X.to("meta"), family=FAMILY)
    with pytest.raises(ValueError, match=r"0\.weight is on the device meta"):
        ng.fisher(net, {name: value.to("meta") for name, value in params.items()}, X, family=FAMILY)
    with pytest.raises(TypeError, match="targets must be a tensor; got list"):
        ng.empirical_fisher(net, params, X, [0] * 5, family=FAMILY)
    with pytest.raises(TypeError, match=r"generator must be a torch\.Generator; got NoneType"):
        ng.monte_carlo_fisher(net, params, X, generator=None, family=FAMILY)
    with pytest.raises(TypeError, match=r"got ndarray\. to_scipy\(\) takes arrays"):
        ng.FisherOperator(net, params, X, family=FAMILY) @ X.numpy()
