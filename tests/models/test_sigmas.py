"""What the norms divide by."""

import pytest
import torch

import normgeom as ng
from normgeom.models import sigmas
from tests.models.cores import REPARAMETRIZED, core, draw


def sigma(summed):
    return (summed.var(-1, correction=0) + 1e-5).sqrt()


def test_they_are_those_of_the_products_at_every_step():
    model, x = core(ng.LNLSTM, bidirectional=True), draw(7, 3, 5)
    outputs, found = model(x)[0], sigmas(model, x)
    zero = torch.zeros(1, 3, 6, dtype=torch.float64)
    ahead, back = torch.cat([zero, outputs[:-1, :, :6]]), torch.cat([outputs[1:, :, 6:], zero])
    for name, h in (("layer0", ahead), ("layer0_reverse", back)):
        cell = model.get_submodule(name)
        assert torch.allclose(found[f"{name}.norm_input"][..., 0], sigma(x @ cell.weight_input.T))
        assert torch.allclose(found[f"{name}.norm_recurrent"][..., 0], sigma(h @ cell.weight_recurrent.T))
    assert found["layer0.norm_cell"].shape == (7, 3, 1)


def test_ids_and_segments_of_their_own():
    model, ids = core(ng.LNGRU), torch.tensor([[0, 1], [4, 4]])
    found = sigmas(model, ids)["layer0.norm_input"]
    columns = model.layer0.weight_input.T[ids]
    wanted = torch.stack([sigma(columns[..., :12]), sigma(columns[..., 12:])], -1)
    assert torch.allclose(found, wanted)


@pytest.mark.filterwarnings("ignore:.*_norm.*:FutureWarning")
@pytest.mark.parametrize("how", REPARAMETRIZED)
def test_of_weights_that_are_computed(how):
    model, x, plain = core(ng.LNLSTM, 6), draw(7, 3, 6), core(ng.LNLSTM, 6)
    REPARAMETRIZED[how](model)
    outputs = model.eval()(x)[0]
    before = torch.cat([torch.zeros(1, 3, 6, dtype=torch.float64), outputs[:-1]])
    found, weight = sigmas(model, x), model.layer0.weight_recurrent
    assert torch.allclose(found["layer0.norm_recurrent"][..., 0], sigma(before @ weight.T))
    assert found.keys() == sigmas(plain, x).keys()


def test_the_layer_is_left_as_found():
    model, x = core(ng.LNLSTM, layers=2, dropout=0.5), draw(7, 3, 5)
    model.layer0.norm_cell.register_forward_hook(lambda *_: pytest.fail("the layer's own part was called"))
    before = torch.get_rng_state()
    sigmas(model, x)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert len(model.layer0.norm_cell._forward_hooks) == 1
    assert not model.layer0.norm_input._forward_hooks


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="the core must be a recurrent layer of normgeom; got Linear"):
        sigmas(torch.nn.Linear(2, 2), draw(3, 2, 2))
    with pytest.raises(ValueError, match="the input must have axes of steps and cases"):
        sigmas(core(ng.LNRNN), draw(3, 5))
