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
