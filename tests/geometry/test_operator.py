import numpy as np
import pytest
import scipy.sparse.linalg
import torch
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from normgeom.geometry import operator as module_under_test
from normgeom.geometry.closed_form import closed_form_fisher
from normgeom.geometry.families import Categorical
from normgeom.geometry.fisher import fisher, fisher_diagonal, fisher_trace
from normgeom.geometry.glm import NormalizedGLM
from normgeom.geometry.operator import FisherOperator
from normgeom.geometry.products import ForwardProduct, ReverseProduct
from normgeom.norms import LayerNorm
from tests.geometry.networks import MIXED, NETWORKS, assert_near, build, free
from tests.oracles import plain_case_fishers


def vectors(F):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(F.shape[0], 3, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("memory", [2**30, 0], ids=["rows", "graph"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_operator_is_the_matrix(name, memory):
    module, data, family = build(name)
    wanted = plain_case_fishers(build(name)[0], data, family).mean(0)
    F = FisherOperator(module, free(module), data, family=family, memory=memory)
    assert (F.rows is None) == (memory == 0 or F.route == "batch")
    assert_near(F @ vectors(F), wanted @ vectors(F))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_is_left_as_found(name):
    module, data, family = build(name)
    state = {k: v.clone() for k, v in module.state_dict().items()}
    random = torch.get_rng_state()
    F = FisherOperator(module, free(module), data, family=family, memory=0)
    F @ torch.ones(F.shape[0])
    assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("mode", [ForwardProduct, ReverseProduct])
@pytest.mark.parametrize("name", ["weight norm", "weight norm of the whole", "LSTM", "encoder layer"])
def test_both_modes_are_right_where_fused_kernels_are_not(name, mode, monkeypatch):
    monkeypatch.setattr("normgeom.geometry.products.MODES", (mode,))
    module, data, family = build(name)
    wanted = plain_case_fishers(build(name)[0], data, family).mean(0)
    F = FisherOperator(module, free(module), data, family=family, memory=0)
    assert_near(F @ vectors(F), wanted @ vectors(F))


def test_a_mode_that_is_wrong_is_not_taken(monkeypatch):
    class Wrong(ForwardProduct):
        def jvp(self, tangents):
            return 1.001 * super().jvp(tangents)

    monkeypatch.setattr("normgeom.geometry.products.MODES", (Wrong,))
    module, data, family = build("layer norm")
    with pytest.raises(ValueError, match="Wrong: adjoint error"):
        FisherOperator(module, free(module), data, family=family, memory=0)


@pytest.mark.parametrize("name", MIXED)
def test_vectors_matrices_dicts_and_damping(name):
    module, data, family = build(name)
    F = FisherOperator(module, free(module), data, family=family, damping=0.5, reduction="sum")
    wanted = plain_case_fishers(build(name)[0], data, family).sum(0)
    v = vectors(F)
    assert_near(F @ v, wanted @ v + 0.5 * v)
    assert_near(F @ v[:, 0], wanted @ v[:, 0] + 0.5 * v[:, 0])
    product = F @ {k: torch.ones_like(v) for k, v in free(module).items()}
    assert {k: v.shape for k, v in product.items()} == {k: v.shape for k, v in free(module).items()}
    flat = torch.cat([v.flatten() for v in product.values()])
    assert_near(flat, wanted.sum(1) + 0.5)


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("dense", [4096, 0], ids=["dense", "eigsh"])
def test_top_eigenvalues(name, dense, monkeypatch):
    monkeypatch.setattr(module_under_test, "DENSE", dense)
    module, data, family = build(name)
    F = FisherOperator(module, free(module), data, family=family, damping=0.1)
    wanted = torch.linalg.eigvalsh(plain_case_fishers(build(name)[0], data, family).mean(0)).flip(0)[:6]
    assert_near(F.top_eigenvalues(6), wanted + 0.1, 1e-10)


def test_scipy_takes_it():
    module, data, family = build("layer norm")
    F = FisherOperator(module, free(module), data, family=family, damping=0.3)
    vector = np.ones(F.shape[0])
    solved, code = scipy.sparse.linalg.cg(F.to_scipy(), vector, rtol=1e-12)
    assert code == 0
    assert_near(F @ torch.from_numpy(solved), torch.from_numpy(vector), 1e-9)


def test_trace_and_diagonal_lie_within_their_error_bars():
    module, data, family = build("layer norm")
    F = FisherOperator(module, free(module), data, family=family, damping=0.1)
    wanted = F.to_dense()
    trace = F.trace(samples=400, generator=torch.Generator().manual_seed(0))
    assert abs(trace.value - wanted.trace()) < 3 * trace.standard_error < 0.3 * wanted.trace()
    diagonal = F.diagonal(samples=400, generator=torch.Generator().manual_seed(1))
    z = (diagonal.value - wanted.diagonal()) / diagonal.standard_error.clamp_min(1e-12)
    assert z.abs().max() < 4
    assert 0.3 < z.square().mean() < 2


@pytest.mark.parametrize("name", ["layer norm", "LSTM", "weight norm"])
def test_a_loader_is_streamed(name):
    module, data, family = build(name)
    loader = DataLoader(TensorDataset(data, torch.zeros(len(data))), batch_size=2)
    F = FisherOperator(module, free(module), loader, family=family)
    wanted = fisher(module, free(module), data, family=family, order="tensor").matrix
    assert_near(F @ vectors(F), wanted @ vectors(F))
    chunked = FisherOperator(module, free(module), data, family=family, chunk_size=2)
    assert_near(chunked @ vectors(F), wanted @ vectors(F))


def test_errors_say_what_to_do():
    module, data, family = build("linear")
    with pytest.raises(ValueError, match="damping must not be negative"):
        FisherOperator(module, free(module), data, family=family, damping=-1.0)
    with pytest.raises(ValueError, match="reduction must be"):
        FisherOperator(module, free(module), data, family=family, reduction="none")
    with pytest.raises(ValueError, match="damping must not be negative, and finite; got nan"):
        FisherOperator(module, free(module), data, family=family, damping=float("nan"))
    F = FisherOperator(module, free(module), data, family=family)
    assert F.order.kind == "tensor"
    assert len(F.order) == 16
    with pytest.raises(ValueError, match=r"shape \(16,\) or \(16, k\)"):
        F @ torch.ones(3)
    with pytest.raises(ValueError, match="k must be between 1 and"):
        F.top_eigenvalues(17)
    with pytest.raises(ValueError, match="at least 2"):
        F.trace(samples=1, generator=torch.Generator())
    noisy = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))
    with pytest.raises(ValueError, match="dropout is active"):
        FisherOperator(noisy, free(noisy), torch.ones(2, 3), family=Categorical())


def _distributed(rank, folder, name):
    """Run in each of two processes; the first saves what it got."""
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    try:
        torch.set_num_threads(1)
        module, data, family = build(name)
        loader = DataLoader(TensorDataset(data), batch_size=2)
        made = [
            FisherOperator(module, free(module), data, family=family),
            FisherOperator(module, free(module), data, family=family, memory=0),
            FisherOperator(module, free(module), loader, family=family),
        ]
        results = [(F.to_dense(), F.top_eigenvalues(4)) for F in made]
        one = fisher(module, free(module), data, family=family, order="tensor").matrix
        two = fisher(module, free(module), loader, family=family, order="tensor").matrix
        diagonal = torch.cat(
            [v.flatten() for v in fisher_diagonal(module, free(module), data, family=family).values()]
        )
        trace = fisher_trace(module, free(module), loader, family=family)
        glm = NormalizedGLM(LayerNorm(), family)
        params = {"weight": data[:3, :3], "bias": data[:3, 0], "gain": data[:3, 1]}
        shared = fisher(glm, params, data[:, :3]).matrix
        assert_near(shared, closed_form_fisher(glm, params, data[:, :3]).matrix, 1e-12)
        few = fisher(module, free(module), data[:1], family=family, order="tensor").matrix
        torch.save((one, two, diagonal, trace, few), f"{folder}/fisher-{rank}.pt")
        shuffled = DataLoader(TensorDataset(data), batch_size=2, shuffle=True)
        with pytest.raises(ValueError, match="same batches"):
            FisherOperator(module, free(module), shuffled, family=family)
        torch.save(results, f"{folder}/{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


def test_two_processes_give_what_one_gives(tmp_path):
    name = "layer norm"
    multiprocessing.spawn(_distributed, (str(tmp_path), name), nprocs=2)
    module, data, family = build(name)
    F = fisher(module, free(module), data, family=family, order="tensor").matrix
    eigenvalues = torch.linalg.eigvalsh(F).flip(0)[:4]
    for rank in range(2):
        for dense, top in torch.load(tmp_path / f"{rank}.pt"):
            assert_near(dense, F, 1e-12)
            assert_near(top, eigenvalues, 1e-10)
        one, two, diagonal, trace, few = torch.load(tmp_path / f"fisher-{rank}.pt")
        assert_near(one, F, 1e-12)
        assert_near(two, F, 1e-12)
        assert_near(diagonal, F.diagonal(), 1e-12)
        assert_near(trace, F.trace(), 1e-12)
        assert_near(few, fisher(module, free(module), data[:1], family=family, order="tensor").matrix, 1e-12)
