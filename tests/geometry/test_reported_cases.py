"""Problems reported in public about Fisher matrices and torch.func, with their right values."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import jacfwd, jacrev, jvp
from torch.nn.utils.parametrizations import weight_norm

import normgeom as ng
from normgeom.geometry.families import Gaussian, MeanVarianceGaussian
from normgeom.geometry.fisher import fisher, monte_carlo_fisher
from normgeom.geometry.kernels import PlainKernels
from normgeom.geometry.operator import FisherOperator
from normgeom.geometry.per_example import per_example_fisher
from normgeom.norms import WeightNorm
from tests.geometry.networks import assert_near, free
from tests.oracles import plain_jacobian

# torch registers some of its forward rules through torch.jit.script, on first use.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")

X0 = torch.tensor([0.7, -0.2, 0.5, 1.1], dtype=torch.float64)
DIRECTION = torch.tensor([1.0, 0.0, 2.0, -1.0], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, 2.0, -0.5, 0.3], dtype=torch.float64)
HIGHER = {
    "layer": (lambda z: F.layer_norm(z, (4,), eps=0.25), [-1.23435083367, 6.06184964273, -8.56093224822]),
    "batch": (
        lambda z: F.batch_norm(z.view(4, 1), None, None, training=True, eps=0.25).view(4),
        [-1.23435083367, 6.06184964273, -8.56093224822],
    ),
    "instance": (lambda z: F.instance_norm(z.view(1, 2, 2), eps=0.25).view(4), [None, 5.61117151996]),
    "group": (lambda z: F.group_norm(z.view(1, 4, 1), 1, eps=0.25).view(4), [None, 6.06184964273]),
    "rms": (lambda z: F.rms_norm(z, (4,), eps=0.25), [None, 0.257609554594]),
}


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("derivative", [jacfwd, jacrev])
@pytest.mark.parametrize("name", HIGHER)
def test_higher_derivatives_of_a_norm_with_plain_kernels(name, derivative):
    """FUN-02, FUN-03: in nested forward mode from order 2, in reverse mode at order 3."""
    op, orders = HIGHER[name]
    slope = lambda t: (op(X0 + t * DIRECTION) * WEIGHTS).sum()  # noqa: E731
    with PlainKernels(norms=True):
        for wanted in orders:
            slope = derivative(slope)
            value = slope(torch.tensor(0.3, dtype=torch.float64))
            assert wanted is None or abs(float(value) - wanted) < 1e-10


def test_weight_norm_has_forward_mode_and_a_right_second_derivative():
    """FUN-04."""
    linear = weight_norm(nn.Linear(4, 1, bias=False, dtype=torch.float64))
    x = torch.randn(5, 4, dtype=torch.float64)
    v = linear.parametrizations.weight.original1.detach()
    g = linear.parametrizations.weight.original0.detach()
    loss = lambda v: ((x @ torch._weight_norm(v, g, 0).T).tanh() ** 2).sum()  # noqa: E731
    with PlainKernels():
        forward = jvp(jacrev(loss), (v,), (v,))[1]
        reverse = jacrev(lambda v: (jacrev(loss)(v) * v.detach()).sum())(v)
        minus = -jacrev(loss)(v)
    wanted = [[0.697332991963, -1.16482445891, 1.16879920532, -0.090877793698]]
    assert_near(minus, torch.tensor(wanted, dtype=torch.float64), 1e-11)
    assert_near(forward, minus)  # degree 0 in v: H v = -g
    assert_near(reverse, minus)


def test_the_likelihood_sets_the_scale_not_the_reduction_of_a_loss():
    """FIS-03: ratios of 2 and of 2 / (5 cases x 3 outputs) = 0.1333."""
    net, x = nn.Linear(2, 3, bias=False).double(), torch.randn(5, 2, dtype=torch.float64)
    unit = fisher(net, free(net), x, family=Gaussian(1.0), reduction="sum", order="tensor").matrix
    half = fisher(net, free(net), x, family=Gaussian(0.5), reduction="sum", order="tensor").matrix
    y = torch.randn(5, 3, dtype=torch.float64)
    hessian = lambda r: torch.func.hessian(lambda w: F.mse_loss(x @ w.T, y, reduction=r))(net.weight)  # noqa: E731
    assert_near(hessian("sum").reshape(6, 6).detach(), half)
    assert_near(hessian("mean").reshape(6, 6).detach(), 2 / 15 * unit)


def test_a_gaussian_needs_no_samples_and_its_variance_has_a_block():
    """FIS-04: x x^T / s^2, 1 / (2 s^4) for the variance, and nothing between the two."""
    x = torch.tensor([[1.0, 2.0, -1.0]], dtype=torch.float64)
    model = lambda p, x: x @ p["weight"].T  # noqa: E731
    params = {"weight": torch.zeros(1, 3, dtype=torch.float64)}
    exact = fisher(model, params, x, family=Gaussian(0.5))
    assert exact.matrix[0, 0] == pytest.approx(2.0, abs=1e-14)
    sampled = monte_carlo_fisher(
        model, params, x, family=Gaussian(0.5), samples=4000, generator=torch.Generator().manual_seed(0)
    )
    assert_near(sampled.matrix, exact.matrix, 0.1)
    two = lambda p, x: torch.cat([x @ p["mean"], x[:, :1] * 0 + p["variance"].log()], 1)  # noqa: E731
    both = {"mean": torch.zeros(3, 1).double(), "variance": torch.full((1, 1), 0.5).double()}
    F = fisher(two, both, x, family=MeanVarianceGaussian(), order="tensor")
    assert_near(F["mean"], 2 * x.T @ x)
    assert F["variance"].item() == pytest.approx(2.0, abs=1e-14)
    assert F["mean", "variance"].abs().max() < 1e-14


NETS = {
    "LN": (lambda a: F.layer_norm(a, (4,), eps=0.0), 8),
    "RMS": (lambda a: F.rms_norm(a, (4,), eps=0.0), 11),
    "BN": (lambda a: (a - a.mean(0)) / a.std(0, unbiased=False), 8),
    "none": (lambda a: a, 12),
    "WN": (lambda a: a, 8),
}


@pytest.mark.parametrize("name", NETS)
def test_the_rank_is_the_parameter_count_minus_the_symmetries(name):
    """FIS-08."""
    norm, rank = NETS[name]
    x, w = torch.randn(60, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    of = (lambda w: w / w.norm(dim=1, keepdim=True)) if name == "WN" else (lambda w: w)
    F_ = fisher(lambda p, x: norm(x @ of(p["w"]).T), {"w": w}, x, family=Gaussian())
    assert F_.rank == rank


def test_the_gain_and_bias_blocks_of_layer_norm():
    """FIS-08: 1 on average, since squares of z sum to the number of units; the identity; the mean."""
    net = nn.LayerNorm(4, eps=0.0).double()
    a = torch.randn(60, 4, dtype=torch.float64)
    F_ = fisher(net, free(net), a, family=Gaussian())
    z = F.layer_norm(a, (4,), eps=0.0)
    assert F_["weight"].diagonal().mean() == pytest.approx(1.0, abs=1e-12)
    assert_near(F_["bias"], torch.eye(4, dtype=torch.float64))
    assert_near(F_["weight", "bias"].diagonal(), z.mean(0))


REDUNDANT = {
    "before and after": (lambda a, b, p: F.layer_norm(a + p["one"], (4,), eps=0.0) + p["two"], 7),
    "after and after": (lambda a, b, p: F.layer_norm(a, (4,), eps=0.0) + p["one"] + p["two"], 4),
    "of two norms": (
        lambda a, b, p: sum(F.layer_norm(v, (4,), eps=0.0) + p[k] for v, k in ((a, "one"), (b, "two"))),
        4,
    ),
}


@pytest.mark.parametrize("name", REDUNDANT)
def test_redundant_biases_lose_rank(name):
    """FIS-09: of 8 parameters."""
    cell, rank = REDUNDANT[name]
    both = torch.randn(40, 2, 4, dtype=torch.float64)
    params = {k: torch.randn(4, dtype=torch.float64) for k in ("one", "two")}
    model = lambda p, x: cell(x[:, 0], x[:, 1], p).tanh()  # noqa: E731
    assert fisher(model, params, both, family=Gaussian()).rank == rank


def test_batch_norm_in_training_mode_keeps_its_buffers():
    """FUN-06: cases are coupled there, and the whole batch goes through at once."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).double()
    x, before = torch.randn(6, 3).double(), {k: v.clone() for k, v in net.named_buffers()}
    fisher(net, free(net), x, family=Gaussian())
    per_example_fisher(net, free(net), x, family=Gaussian())
    FisherOperator(net, free(net), x, family=Gaussian()).top_eigenvalues(2)
    assert all(torch.equal(v, before[k]) for k, v in net.named_buffers())


def test_batch_norm_case_by_case():
    """FUN-06: in eval mode the loop's, and of one case in training mode nothing."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).double()
    x = torch.randn(6, 3).double()
    with pytest.raises(ValueError, match="more than 1 value per channel when training"):
        per_example_fisher(net, free(net), x[:1], family=Gaussian())
    rows = per_example_fisher(net.eval(), free(net), x, family=Gaussian(), order="tensor").jacobian
    assert_near(rows, plain_jacobian(net, x)[1])


def test_a_norm_used_twice_adds_both_calls():
    """FUN-10."""

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.one, self.two = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.norm(self.two(self.norm(self.one(x)).tanh())).pow(3)

    net, x = Decoder().double(), torch.randn(6, 4, dtype=torch.float64)
    rows = per_example_fisher(net, free(net), x, family=Gaussian(), order="tensor").jacobian
    assert_near(rows, plain_jacobian(net, x)[1])


def test_chunks_accumulate_to_the_whole():
    """FUN-12."""
    net = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)).double()
    x = torch.randn(40, 6, dtype=torch.float64)
    whole = fisher(net, free(net), x, family=Gaussian())
    assert len(whole.order) == 63
    assert_near(fisher(net, free(net), x, family=Gaussian(), chunk_size=8).matrix, whole.matrix)


def test_a_matrix_that_does_not_fit_is_refused_with_its_size():
    """FUN-12: the bytes of P^2 numbers, before any is computed."""
    net = nn.Linear(10**6, 1, device="meta")
    params, x = {"weight": torch.zeros(1, 10**6), "bias": torch.zeros(1)}, torch.zeros(2, 10**6)
    with pytest.raises(
        ValueError, match=r"of 1000001 parameters needs 3725\.3 GiB, more than the .* of this"
    ):
        fisher(net, params, x, family=Gaussian())


@pytest.mark.parametrize("derivative", [jacfwd, jacrev])
def test_the_squared_norm_has_a_second_derivative_at_zero(derivative):
    # FIS-11: through vector_norm it is 0 or NaN there. The statistics of every norm are squares and sums.
    zero, x = torch.zeros(1, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    squared = lambda w: WeightNorm().statistics(w, x)[1].sum()  # noqa: E731
    second = derivative(jacrev(lambda w: torch.exp(-squared(w))))(zero).reshape(3, 3)
    assert_near(second, -2 * torch.eye(3, dtype=torch.float64))


def test_a_weight_of_zero_is_refused_without_eps_and_right_with_it():
    # FIS-11: the point where the norm is not smooth. With eps, eta = w x / sqrt(eps) to first order.
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]], dtype=torch.float64)
    params = {"weight": torch.zeros(1, 2), "bias": torch.zeros(1), "gain": torch.ones(1)}
    params = {name: value.double() for name, value in params.items()}
    with pytest.raises(ValueError, match="0/0 is NaN: drop cases or units that have none, or set eps > 0"):
        ng.fisher(ng.NormalizedGLM(WeightNorm(), Gaussian()), params, x)
    glm = ng.NormalizedGLM(WeightNorm(), Gaussian(), eps=0.25)
    for route in (None, "batch"):
        F = ng.fisher(glm, params, x, route=route)
        assert_near(F["weight"], x.T @ x / 3 / 0.25)
        assert F["gain"].abs().max() == 0
    step = {"weight": torch.full((1, 2), 1e-3, dtype=torch.float64)}
    found = ng.kl_against_quadratic(glm, params, x, step)
    assert found.relative_errors[-1] < 1e-10


def test_the_function_that_uses_a_norm_of_zero_is_refused():
    model = lambda p, x: x * torch.linalg.vector_norm(p["w"] - p["w"].detach()).sqrt()  # noqa: E731
    x = torch.ones(3, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="must be finite, but those in w are not"):
        ng.fisher(model, {"w": torch.ones(2).double()}, x, family=Gaussian())


def test_input_gradients_of_layer_norm_by_hand_and_by_autograd_in_float32():
    # FIS-12: the offset-to-sigma ratio of 50 cancels digits; norm-wise both float32 forms are near float64.
    x, gain, dy = torch.randn(256, 1024) * 0.02 + 1.0, torch.rand(1024), torch.randn(256, 1024)

    def by_hand(x, gain, dy):
        centred = x - x.mean(-1, keepdim=True)
        rate = ((centred**2).mean(-1, keepdim=True) + 1e-5).rsqrt()
        z, g = centred * rate, dy * gain
        return rate * (g - g.mean(-1, keepdim=True) - z * (g * z).mean(-1, keepdim=True))

    def by_autograd(x, gain, dy):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(F.layer_norm(x, (1024,), gain), x, dy)[0]

    wanted = by_hand(x.double(), gain.double(), dy.double())
    assert_near(by_autograd(x.double(), gain.double(), dy.double()), wanted)
    assert_near(by_hand(x, gain, dy).double(), wanted, 5e-6)
    assert_near(by_autograd(x, gain, dy).double(), wanted, 5e-6)


def test_the_fisher_matrix_of_layer_norms_input_in_float32():
    # FIS-12 through the metric: a shift of the input is the parameter, so J is the input gradient.
    x, gain = torch.randn(64, 32) * 0.02 + 1.0, torch.rand(32)
    model = lambda p, x: F.layer_norm(x + p["shift"], (32,), gain.to(x))  # noqa: E731

    def at(kind):
        shift = {"shift": torch.zeros(32, dtype=kind)}
        return ng.fisher(model, shift, x.to(kind), family=Gaussian()).matrix

    wanted = at(torch.float64)
    centred = x.double() - x.double().mean(1, keepdim=True)
    rate = ((centred**2).mean(1, keepdim=True) + 1e-5).rsqrt()
    z, one = centred * rate, torch.ones(32, 32, dtype=torch.float64)
    mixing = (torch.eye(32) - one / 32 - z[:, :, None] * z[:, None] / 32) * rate[:, :, None]
    assert_near((mixing @ torch.diag(gain.double() ** 2) @ mixing).mean(0), wanted)
    assert_near(at(torch.float32).double(), wanted, 5e-6)
