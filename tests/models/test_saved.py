"""What a pass saves for its gradient: freed with the graph, and taken away and brought back by hooks."""

import pytest
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import normgeom as ng
from normgeom.models import buffers
from normgeom.models.buffers import Pool
from tests.models.cores import LAYERS, core, draw, route


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("way", ["kernel", "plain"])
def test_a_checkpointed_pass_has_the_gradients_of_the_pass(kind, way, monkeypatch):
    model, x = core(kind), draw(7, 3, 5).requires_grad_()
    leaves = [x, *model.parameters()]
    with route(way, monkeypatch):
        wanted = torch.autograd.grad(model(x)[0].square().sum(), leaves)
        again = checkpoint(lambda x: model(x)[0], x, use_reentrant=False)
        model(x)
        found = torch.autograd.grad(again.square().sum(), leaves)
    assert all((a - b).abs().max() < 1e-12 for a, b in zip(found, wanted, strict=True))


def test_a_checkpoint_of_the_half_types():
    model, x = core(ng.LNLSTM, dtype=torch.bfloat16), draw(5, 2, 5, dtype=torch.bfloat16)
    checkpoint(lambda x: model(x)[0], x.requires_grad_(), use_reentrant=False).sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.any()


@pytest.mark.parametrize("way", ["kernel", "plain"])
@pytest.mark.parametrize("hooks", [save_on_cpu, lambda: saved_tensors_hooks(torch.clone, torch.clone)])
def test_saved_tensors_may_be_moved(way, hooks, monkeypatch):
    model, x = core(ng.LNLSTM), draw(7, 3, 5)
    leaves = list(model.parameters())
    with route(way, monkeypatch):
        wanted = torch.autograd.grad(model(x)[0].square().sum(), leaves)
        with hooks():
            value = model(x)[0].square().sum()
        model(x)[0].sum().backward()  # would write over what went back too early
        found = torch.autograd.grad(value, leaves)
    assert all((a - b).abs().max() < 1e-12 for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("way", ["kernel", "plain"])
def test_a_pass_gives_its_memory_back_with_the_graph(way, monkeypatch):
    pool = Pool()
    monkeypatch.setenv("NORMGEOM_FUSED", str(int(way == "kernel")))
    monkeypatch.setattr(buffers, "POOL", pool)
    model, x = core(ng.LNLSTM), draw(7, 3, 5)
    value = model(x)[0].sum()
    value.backward(retain_graph=True)
    kept = pool.bytes
    value.backward()
    freed = pool.bytes
    del value
    assert kept < freed == pool.bytes
    total = torch.zeros((), dtype=torch.float64)
    for _ in range(5):
        value = model(x)[0].sum()
        value.backward()
        total = total + value
    assert pool.bytes == freed


@pytest.mark.parametrize("way", ["kernel", "plain"])
def test_a_pass_whose_gradient_is_never_asked_for_gives_its_memory_back(way, monkeypatch):
    pool = Pool()
    monkeypatch.setenv("NORMGEOM_FUSED", str(int(way == "kernel")))
    monkeypatch.setattr(buffers, "POOL", pool)
    model, x = core(ng.LNLSTM), draw(7, 3, 5)
    value = model(x)[0].sum()
    kept = pool.bytes
    del value
    assert kept == 0 < pool.bytes
