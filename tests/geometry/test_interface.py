"""The public names as a user meets them: `import normgeom as ng`, `(model, params, data)`, plain errors."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import normgeom as ng
from tests.geometry.glms import CASES, double, golden

ORDERS = [
    "from normgeom.geometry import fisher, null_space, gain_metric",
    "import normgeom.geometry.fisher; from normgeom.geometry import fisher, null_space, gain_metric",
    "import normgeom.geometry.null_space as m; from normgeom import fisher, null_space, gain_metric",
    "from normgeom.geometry.operator import FisherOperator; "
    "from normgeom.geometry import fisher, null_space, gain_metric",
    "from normgeom import fisher, null_space, gain_metric; import normgeom.geometry.scaling",
]


@pytest.mark.parametrize("order", ORDERS)
def test_functions_are_not_shadowed_by_the_files_of_their_name(order):
    code = f"{order}; import normgeom.geometry as g; print(callable(fisher), g.fisher is fisher, "
    code += "callable(null_space), g.null_space is null_space, callable(gain_metric))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 5


def test_every_public_name_is_there():
    assert all(hasattr(ng, name) for name in ng.__all__)
    assert len(ng.__all__) == len(set(ng.__all__))
    assert set(ng.geometry.__all__) <= set(ng.__all__)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_golden_matrices_through_numpy_and_torch(name, dtype):
    model, params, data = golden(name)
    if isinstance(model.norm, ng.FrozenBatchNorm):
        frozen = ng.FrozenBatchNorm(model.norm.mean.to(dtype), model.norm.variance.to(dtype))
        model = ng.NormalizedGLM(frozen, model.family, eps=model.eps)
    params, data = {n: p.to(dtype) for n, p in params.items()}, data.to(dtype)
    F = ng.fisher(model, params, data)
    wanted = double(CASES[name]["fisher"])
    atol = (1e-12 if dtype == torch.float64 else 2e-6) * float(wanted.abs().max())
    for value in (torch.as_tensor(F), torch.from_numpy(np.asarray(F)), F.matrix):
        assert value.dtype == dtype
        torch.testing.assert_close(value.double(), wanted, rtol=0, atol=atol)
    per_case = torch.as_tensor(ng.per_example_fisher(model, params, data))
    torch.testing.assert_close(per_case.double().mean(0), wanted, rtol=0, atol=atol)


def test_blocks_by_name():
    model, params, data = golden("ln-bernoulli-H3D2N5")
    F = ng.fisher(model, params, data)
    gains, weights = [3, 7, 11], [0, 1, 4, 5, 8, 9]
    assert torch.equal(F["weight", "gain"], F.matrix[weights][:, gains])
    with pytest.raises(KeyError, match="no parameter 'gian'; there are weight, bias, gain"):
        F["weight", "gian"]
    with pytest.raises(TypeError, match=r"by the names of parameters, F\['weight', 'gain'\].*got \(0, 1\)"):
        F[0, 1]


def test_parameters_that_require_gradients_give_a_plain_matrix():
    model, params, data = golden("ln-bernoulli-H3D2N5")
    free = {n: p.clone().requires_grad_() for n, p in params.items()}
    for call in (ng.fisher, ng.per_example_fisher, ng.closed_form_fisher):
        F = call(model, free, data)
        np.testing.assert_array_equal(np.asarray(F), np.asarray(call(model, params, data)))
    assert not ng.fisher(model, free, data).matrix.requires_grad


def test_the_order_of_the_dict_does_not_matter_for_a_glm():
    model, params, data = golden("bn-poisson-H3D2N5")
    shuffled = {name: params[name] for name in ("gain", "bias", "weight")}
    wanted = ng.fisher(model, params, data)
    for options in ({}, {"route": "batch"}, {"blocks": ["bias", "weight", "gain"]}):
        F = ng.fisher(model, shuffled, data, **options)
        assert F.order.names == ("weight", "bias", "gain")
        torch.testing.assert_close(F.matrix, wanted.matrix)
    dense = ng.FisherOperator(model, shuffled, data).to_dense()
    torch.testing.assert_close(dense, wanted.to_order("tensor").matrix)


# --- errors ----------------------------------------------------------------------------------------------

CALLS = [ng.fisher, ng.per_example_fisher, ng.fisher_trace, ng.fisher_diagonal, ng.FisherOperator]
GLM, PARAMS, DATA = golden("ln-categorical-H3D2N5")
NAN = float("nan")
GLM_FAULTS = {
    "transposed weight": (lambda p, x: (p | {"weight": p["weight"].T}, x), "same number of inputs .axis 1"),
    "one case as a vector": (lambda p, x: (p, x[0]), r"weight must be \(units, inputs\) and data \(cases"),
    "no bias": (lambda p, x: ({n: p[n] for n in ("weight", "gain")}, x), r"got \['gain', 'weight'\]"),
    "unknown parameter": (lambda p, x: (p | {"scale": p["gain"]}, x), "of a GLM are 'weight', 'bias' and"),
    "no tensor": (lambda p, x: (p | {"gain": None}, x), "must be tensors; gain is NoneType"),
    "short gain": (
        lambda p, x: (p | {"gain": p["gain"][:2]}, x),
        r"shape \(3,\) for this weight; got \(2,\)",
    ),
    "NaN data": (lambda p, x: (p, torch.where(x == x[0, 0], NAN, x)), "not hold NaN; got 1 of 10 values"),
    "NaN gain": (lambda p, x: (p | {"gain": p["gain"] * NAN}, x), "3 of the 3 values of gain are not"),
    "infinite bias": (lambda p, x: (p | {"bias": p["bias"] / 0}, x), "the 3 values of bias are not"),
    "integers": (lambda p, x: ({n: v.long() for n, v in p.items()}, x), "weight is torch.int64"),
    "mixed types": (lambda p, x: (p, x.float()), "one dtype; got torch.float32, torch.float64"),
    "no case": (lambda p, x: (p, x[:0]), r"at least one case; got a tensor of shape \(0, 2\)"),
    "lists": (lambda p, x: (p, x.tolist()), "got float. Wrap arrays and lists with torch.tensor"),
    "numpy": (lambda p, x: (p, x.numpy()), "got ndarray. Wrap arrays and lists with torch.from_numpy"),
    "swapped": (lambda p, x: (x, p), r"got Tensor. The order is \(model, params, data\)"),
    "empty dict": (lambda p, x: ({}, x), "not empty.*got an empty dict"),
}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("fault", GLM_FAULTS)
def test_errors_of_a_glm(call, fault):
    break_it, message = GLM_FAULTS[fault]
    with pytest.raises((ValueError, TypeError), match=message):
        call(GLM, *break_it(dict(PARAMS), DATA))


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3)).double()
    return net, dict(net.named_parameters())


NET_FAULTS = {
    "no family": (lambda p: (p, {"family": None}), "a family must be given for a module"),
    "class of a family": (lambda p: (p, {"family": ng.Categorical}), r"an object such as Categorical\(\)"),
    "name of a family": (lambda p: (p, {"family": "categorical"}), "got 'categorical'"),
    "unknown name": (lambda p: ({"w": p["0.weight"]}, {}), "no parameter 'w'; it has 0.weight, 0.bias"),
    "shape": (lambda p: (p | {"0.weight": p["0.weight"].T}, {}), r"parameter, \(3, 2\); got \(2, 3\)"),
    "unknown block": (lambda p: (p, {"blocks": ["w"]}), r"blocks must name parameters.*got \['w'\]"),
    "block as a string": (lambda p: (p, {"blocks": "0.bias"}), r"write \['0.bias'\]"),
    "chunk": (lambda p: (p, {"chunk_size": 0}), "chunk_size must be at least 1, and a whole number; got 0"),
    "NaN": (lambda p: (p | {"0.bias": p["0.bias"] * NAN}, {}), "3 of the 3 values of 0.bias are not"),
}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("fault", NET_FAULTS)
def test_errors_of_a_module_come_before_it_is_called(call, fault, monkeypatch):
    net, params = network()
    params, options = NET_FAULTS[fault][0](params)
    if fault != "chunk":
        monkeypatch.setattr(net, "forward", lambda *_: pytest.fail("the model was called"))
    with pytest.raises((ValueError, TypeError), match=NET_FAULTS[fault][1]):
        call(net, params, DATA, **{"family": ng.Categorical(), **options})


def test_errors_of_models_routes_and_iterators():
    net, params = network()
    family = ng.Categorical()
    with pytest.raises(TypeError, match=r"or a function of .params, data.; got the class Linear"):
        ng.fisher(nn.Linear, params, DATA, family=family)
    with pytest.raises(TypeError, match=r"or a function of .params, data.; got int"):
        ng.fisher(3, params, DATA, family=family)
    with pytest.raises(TypeError, match="the closed form is that of a NormalizedGLM; got Sequential"):
        ng.closed_form_fisher(net, params, DATA)
    with pytest.raises(ValueError, match="route must be one of layers, vmap, loop, batch; got 'fast'"):
        ng.fisher(net, params, DATA, family=family, route="fast")
    with pytest.raises(TypeError, match="an iterator only once; give a list of batches or a DataLoader"):
        ng.FisherOperator(net, params, iter([DATA]), family=family)
    with pytest.raises(ValueError, match="at least one case; got none"):
        ng.FisherOperator(net, params, [], family=family)


def test_an_infinity_in_the_data_may_be_a_mask():
    mask = torch.tensor([[0.0, -torch.inf]]).double().expand(5, 2)
    model = lambda p, x: (x[0] * torch.softmax(x[1], 1)) @ p["weight"].T  # noqa: E731
    masked = ng.fisher(model, {"weight": PARAMS["weight"]}, (DATA, mask), family=ng.Gaussian())
    first = DATA * double([1.0, 0.0])
    plain = ng.fisher(
        lambda p, x: x @ p["weight"].T, {"weight": PARAMS["weight"]}, first, family=ng.Gaussian()
    )
    torch.testing.assert_close(masked.matrix, plain.matrix)


def test_errors_of_a_glm_that_is_put_together_wrongly():
    with pytest.raises(TypeError, match=r"object with statistics.weight, data., for example LayerNorm\(\)"):
        ng.NormalizedGLM(ng.LayerNorm, ng.Categorical())
    with pytest.raises(TypeError, match=r"the family must be an object such as Categorical\(\)"):
        ng.NormalizedGLM(ng.LayerNorm(), ng.Categorical)
    with pytest.raises(ValueError, match="eps must be a finite number >= 0; got -1"):
        ng.NormalizedGLM(ng.LayerNorm(), ng.Categorical(), eps=-1)
