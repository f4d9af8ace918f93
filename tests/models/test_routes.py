"""One function however it is run: by its definition, by plain operations, by the kernel."""

import ctypes
import logging
import os

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

import normgeom as ng
from normgeom.models.fused import build
from normgeom.models.fused.kernel import KernelPass
from normgeom.models.plain.passes import PlainPass
from tests.models.cores import LAYERS, VARIANT_IDS, VARIANTS, core, draw, gradients, route


def start(model, cases=3, dtype=torch.float64):
    shape = (len(model.cells()), cases, model.hidden_size)
    h, c = (draw(*shape, seed=s, dtype=dtype).requires_grad_() for s in (2, 3))
    return (h, c) if model.layer0.has_cell_state else h


def apart(found, wanted):
    """The largest difference of outputs and gradients, relative to the largest entry."""
    pairs = zip((found[0], *found[1]), (wanted[0], *wanted[1]), strict=True)
    return max(float((a - b).abs().max() / (b.abs().max() + 1e-3)) for a, b in pairs)


@pytest.mark.parametrize(("kind", "placement"), VARIANTS, ids=VARIANT_IDS)
@pytest.mark.parametrize("way", ["kernel", "plain"])
def test_values_and_gradients_are_those_of_the_definition(kind, placement, way, monkeypatch):
    model = core(kind, layers=2, bidirectional=True, placement=placement)
    x, state = draw(7, 3, 5).requires_grad_(), start(model)
    with route("definition", monkeypatch):
        wanted = gradients(model, x, state=state)
    with route(way, monkeypatch):
        assert apart(gradients(model, x, state=state), wanted) < 1e-12


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("way", ["kernel", "plain"])
def test_float32_is_as_close_to_float64_as_the_definition_is(kind, way, monkeypatch):
    exact, model = core(kind, 8, 16), core(kind, 8, 16, dtype=torch.float32)
    x = draw(20, 4, 8)
    with route("definition", monkeypatch):
        wanted, plain = gradients(exact, x), gradients(model, x.float())
    with route(way, monkeypatch):
        found = gradients(model, x.float())
    as_double = lambda result: (result[0].double(), [g.double() for g in result[1]])  # noqa: E731
    assert apart(as_double(found), wanted) < 4 * apart(as_double(plain), wanted) + 1e-6


@pytest.mark.parametrize("way", ["kernel", "plain"])
def test_a_seeded_fault_in_a_gradient_is_seen(way, monkeypatch):
    model, x = core(ng.LNLSTM), draw(7, 3, 5)
    with route("definition", monkeypatch):
        outputs, wanted = gradients(model, x)
    with route(way, monkeypatch):
        found = gradients(model, x)
    assert apart(found, (outputs, [g * 1.001 for g in wanted])) > 5e-4


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("way", ["kernel", "plain"])
def test_first_and_second_derivatives_by_differences(kind, way, monkeypatch):
    model, x, names = core(kind, 2, 3), draw(3, 2, 2).requires_grad_(), []
    state = start(model, 2)
    state = state if isinstance(state, tuple) else (state,)
    names = [name for name, _ in model.named_parameters()]

    def run(x, *rest):
        given, own = rest[: len(state)], dict(zip(names, rest[len(state) :], strict=True))
        outputs, final = functional_call(model, own, (x, given if len(given) > 1 else given[0]))
        return outputs, *(final if isinstance(final, tuple) else (final,))

    arguments = (x, *state, *(p.detach().clone().requires_grad_() for p in model.parameters()))
    with route(way, monkeypatch):
        assert gradcheck(run, arguments, fast_mode=True)
        assert gradgradcheck(run, arguments, fast_mode=True)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_transforms_see_the_definition(kind):
    model, x, cotangent = core(kind, 2, 3), draw(3, 2, 2), draw(3, 2, 3, seed=5)
    own = {name: value.detach() for name, value in model.named_parameters()}
    loss = lambda own, x, w: (functional_call(model, own, (x[:, None],))[0][:, 0] * w).sum()  # noqa: E731
    each = vmap(grad(loss), in_dims=(None, 1, 1))(own, x, cotangent)
    wanted = torch.autograd.grad((model(x)[0] * cotangent).sum(), list(model.parameters()))
    for found, want in zip(each.values(), wanted, strict=True):
        assert (found.sum(0) - want).abs().max() < 1e-12
    whole = lambda own: functional_call(model, own, (x,))[0]  # noqa: E731
    tangents = {name: draw(*value.shape, seed=6) for name, value in own.items()}
    along = jvp(whole, (own,), (tangents,))[1]
    jacobian = jacrev(whole)(own)
    summed = sum(torch.tensordot(jacobian[n], t, t.ndim) for n, t in tangents.items())
    assert (along - summed).abs().max() < 1e-12


@pytest.mark.parametrize("way", ["kernel", "plain"])
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_derivatives_up_to_the_third_agree_in_forward_and_reverse_mode(way, monkeypatch):
    """Torch's fused layer norm is wrong at order 2 in nested forward mode, at order 3 in reverse mode."""
    model, x, direction = core(ng.LNLSTM, 2, 3), draw(3, 1, 2), draw(3, 1, 2, seed=4)
    along = lambda s: model(x + s * direction)[0].square().sum()  # noqa: E731
    point = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    with route(way, monkeypatch):
        value, reverse = along(point), []
        for _ in range(3):
            (value,) = torch.autograd.grad(value, point, create_graph=True)
            reverse.append(float(value.detach()))
    forward, derivative = [], along
    for _ in range(3):
        derivative = jacfwd(derivative)
        forward.append(float(derivative(point.detach()).detach()))
    assert reverse == pytest.approx(forward, rel=1e-9)
    step = 1e-3
    differences = hessian(along)(point.detach() + step) - hessian(along)(point.detach() - step)
    assert float(differences.detach()) / (2 * step) == pytest.approx(reverse[2], rel=1e-3)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_the_hessian_at_a_zero_state_is_finite_and_symmetric():
    model, x = core(ng.LNLSTM, 2, 3), draw(2, 1, 2)
    value = lambda h: model(x, (h, torch.zeros_like(h)))[0].square().sum()  # noqa: E731
    matrix = hessian(value)(torch.zeros(1, 1, 3, dtype=torch.float64)).reshape(3, 3)
    assert matrix.isfinite().all()
    assert (matrix - matrix.T).abs().max() < 1e-9 * matrix.abs().max()


@pytest.mark.parametrize("kind", LAYERS)
def test_compilation_traces_the_whole(kind):
    model, x = core(kind), draw(3, 2, 5)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    found = torch.autograd.grad(compiled(x)[0].sum(), model.layer0.weight_recurrent)[0]
    wanted = torch.autograd.grad(model(x)[0].sum(), model.layer0.weight_recurrent)[0]
    assert (found - wanted).abs().max() < 1e-12


def test_a_hook_on_a_part_sees_its_calls_and_values_stay():
    model, x, seen = core(ng.LNLSTM), draw(7, 3, 5), []
    wanted = model(x)[0]
    norm = model.layer0.norm_recurrent
    handle = norm.register_forward_hook(lambda part, inputs, _: seen.append(part.sigma(inputs[0])))
    assert (model(x)[0] - wanted).abs().max() < 1e-13
    handle.remove()
    summed = (
        torch.cat([torch.zeros(1, 3, 6, dtype=torch.float64), wanted[:-1]]) @ model.layer0.weight_recurrent.T
    )
    assert torch.allclose(torch.stack(seen), norm.sigma(summed))


@pytest.mark.parametrize("way", ["kernel", "plain"])
def test_a_second_backward_pass_gives_the_same(way, monkeypatch):
    model, x = core(ng.LNGRU), draw(7, 3, 5)
    with route(way, monkeypatch):
        value = model(x)[0].square().sum()
        first = torch.autograd.grad(value, list(model.parameters()), retain_graph=True)
        model(x)
        second = torch.autograd.grad(value, list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("way", ["kernel", "plain"])
def test_gradients_of_many_cotangents_at_once(way, monkeypatch):
    model, x = core(ng.LNLSTM, 2, 3), draw(3, 2, 2)
    with route(way, monkeypatch):
        outputs, weight = model(x)[0], model.layer0.weight_recurrent
        basis = torch.eye(outputs.numel(), dtype=torch.float64).view(-1, *outputs.shape)
        found = torch.autograd.grad(outputs, weight, basis, is_grads_batched=True, retain_graph=True)[0]
        wanted = [torch.autograd.grad(outputs, weight, one, retain_graph=True)[0] for one in basis]
    assert (found - torch.stack(wanted)).abs().max() < 1e-12


@pytest.fixture
def calls(monkeypatch):
    """How often the kernel ran."""
    count = []
    run = KernelPass.forward
    monkeypatch.setattr(KernelPass, "forward", lambda *a: count.append(1) or run(*a))
    return count


def test_the_kernel_serves_by_itself(calls):
    for kind in LAYERS:
        core(kind)(draw(3, 2, 5))
        core(kind, dtype=torch.float32)(draw(3, 2, 5, dtype=torch.float32))
    assert len(calls) == 8


def test_the_kernel_leaves_what_it_does_not_know(calls):
    core(ng.LNLSTM, dtype=torch.bfloat16)(draw(3, 2, 5, dtype=torch.bfloat16))
    core(ng.LNGRU, placement=ng.Placement(True, True, False, joint=True))(draw(3, 2, 5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        core(ng.LNLSTM, dtype=torch.float32)(draw(3, 2, 5, dtype=torch.float32))
    changed = core(ng.LNLSTM)
    changed.layer0.norm_cell = nn.LayerNorm(6, dtype=torch.float64)
    changed(draw(3, 2, 5))
    assert calls == []


def test_without_a_compiler_one_line_is_logged_and_the_values_stay(monkeypatch, tmp_path, caplog, calls):
    wanted = core(ng.LNLSTM)(draw(3, 2, 5))[0]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    calls.clear()
    with caplog.at_level(logging.INFO):
        found = [core(ng.LNLSTM)(draw(3, 2, 5))[0] for _ in range(2)]
    assert (found[0] - wanted).abs().max() < 1e-13
    assert calls == []
    assert [r.getMessage() for r in caplog.records] == [
        "no fused cells (double), the plain ones are used: "
        "no C compiler was found; install one, or set CC to its name"
    ]


def test_a_compiler_that_fails_is_reported(monkeypatch, tmp_path, caplog):
    broken = tmp_path / "broken-cc"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo broken 1.0 && exit 0\necho no such thing >&2\nexit 1\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert build.library(torch.float32) is None
    assert "no such thing" in caplog.text
    assert list((tmp_path / "cache" / "normgeom").iterdir()) == []


def test_the_library_is_built_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.library(torch.float32) is not None
    (made,) = (tmp_path / "normgeom").iterdir()
    before = os.stat(made).st_mtime_ns
    build._library.cache_clear()
    assert build.library(torch.float32) is not None
    assert os.stat(made).st_mtime_ns == before
    monkeypatch.setenv("NORMGEOM_FUSED", "0")
    assert build.library(torch.float32) is None


@pytest.mark.parametrize("with_tanh", [True, False])
def test_the_kernels_functions_are_accurate_in_float32(with_tanh):
    x = torch.cat(
        [torch.linspace(-80, 80, 100_001), torch.linspace(-1, 1, 100_001), torch.logspace(-37, 0, 999)]
    )
    wanted = x.double().tanh() if with_tanh else x.double().sigmoid()
    found = x.clone()
    build.library(torch.float32).apply(*(ctypes.c_int64(n) for n in (found.data_ptr(), len(x), with_tanh)))
    unit = torch.nextafter(wanted.float().abs(), torch.tensor(2.0)).double() - wanted.float().abs().double()
    assert ((found.double() - wanted).abs() / unit).max() < 3


def test_what_is_not_a_number_stays_so():
    x = draw(3, 2, 5, dtype=torch.float32)
    x[1] = float("nan")
    outputs = core(ng.LNLSTM, dtype=torch.float32)(x)[0]
    assert outputs[0].isfinite().all()
    assert outputs[1:].isnan().all()


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_half_types_are_as_close_to_float64_as_the_definition_is(kind, dtype, monkeypatch):
    exact, model, x = core(kind, 8, 16), core(kind, 8, 16, dtype=dtype), draw(6, 4, 8)
    with route("definition", monkeypatch):
        wanted, defined = gradients(exact, x), gradients(model, x.to(dtype))
    found = gradients(model, x.to(dtype))
    as_double = lambda result: (result[0].double(), [g.double() for g in result[1]])  # noqa: E731
    assert apart(as_double(found), wanted) < 2 * apart(as_double(defined), wanted)


def test_every_cell_but_the_joint_gated_one_has_a_plain_pass(monkeypatch):
    ran = []
    run = PlainPass.forward
    monkeypatch.setattr(PlainPass, "forward", lambda *a: ran.append(1) or run(*a))
    monkeypatch.setenv("NORMGEOM_FUSED", "0")
    for kind in LAYERS:
        core(kind)(draw(3, 2, 5))
    core(ng.LNGRU, placement=ng.Placement(True, True, False, joint=True))(draw(3, 2, 5))
    assert len(ran) == 4


@pytest.mark.parametrize(("kind", "placement"), VARIANTS, ids=VARIANT_IDS)
def test_a_pass_stays_on_its_device(kind, placement):
    """On the meta device, where any tensor of another one is an error."""
    model = kind(5, 6, 2, bidirectional=True, placement=placement, device="meta")
    x = torch.empty(7, 3, 5, device="meta", requires_grad=True)
    model(x)[0].sum().backward()
    assert all(value.grad.shape == value.shape for value in (x, *model.parameters()))
