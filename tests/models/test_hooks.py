"""Hooks of cells that a layer runs over sequences."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import normgeom as ng
from tests.models.cores import core, draw


@pytest.mark.parametrize("reverse", [False, True])
def test_a_pruned_weight_is_masked_at_every_step_of_training(reverse):
    model, x = core(ng.LNLSTM, bidirectional=reverse), draw(7, 3, 5)
    cell = model.layer0_reverse if reverse else model.layer0
    prune.random_unstructured(cell, "weight_recurrent", 0.5)
    for _ in range(3):
        model(x)[0].square().sum().backward()
        assert not cell.weight_recurrent_orig.grad[cell.weight_recurrent_mask == 0].any()
        with torch.no_grad():
            cell.weight_recurrent_orig.sub_(0.1 * cell.weight_recurrent_orig.grad)
    found = model(x)[0]
    prune.remove(cell, "weight_recurrent")
    assert (model(x)[0] - found).abs().max() < 1e-13


@pytest.mark.filterwarnings("ignore:.*spectral_norm.*:FutureWarning")
def test_a_spectral_norm_is_that_of_the_weight_it_was_given():
    model, x = core(ng.LNLSTM, placement=ng.Placement.none()), draw(7, 3, 5)
    weight = model.layer0.weight_recurrent.detach().clone()
    nn.utils.spectral_norm(model.layer0, "weight_recurrent", n_power_iterations=100)
    found, plain = model(x)[0], core(ng.LNLSTM, placement=ng.Placement.none())
    with torch.no_grad():
        plain.layer0.weight_recurrent.copy_(weight / torch.linalg.matrix_norm(weight, 2))
    assert (found - plain(x)[0]).abs().max() < 1e-9


@pytest.mark.parametrize("with_kwargs", [False, True])
def test_hooks_of_a_cell_see_the_pass_once(with_kwargs):
    model, x, seen = core(ng.LNGRU), draw(7, 3, 5), []
    wanted = model(x)
    model.layer0.register_forward_pre_hook(lambda *given: seen.append(given), with_kwargs=with_kwargs)
    model.layer0.register_forward_hook(lambda *given: seen.append(given), with_kwargs=with_kwargs)
    model(x)
    before, after = seen
    assert torch.equal(before[1][0], x)
    assert before[1][1].shape == (3, 6)
    assert (after[-1][0] - wanted[0]).abs().max() < 1e-13
    assert (after[-1][1] - wanted[1][0]).abs().max() < 1e-13


def test_hooks_that_no_pass_can_heed_are_refused():
    model, x = ng.LNLSTM(3, 4), draw(7, 3, 3, dtype=torch.float32)
    handle = model.layer0.register_forward_hook(lambda cell, inputs, outputs: outputs)
    with pytest.raises(ValueError, match="must return None; got tuple"):
        model(x)
    handle.remove()
    model.layer0.register_full_backward_hook(lambda *_: None)
    with pytest.raises(
        ValueError, match="a LNLSTMCell that is run over a sequence must have no backward hook"
    ):
        model(x)
