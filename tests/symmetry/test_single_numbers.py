"""Numbers, types and words of what a scan says of single blocks."""

import pytest
import torch
from torch import nn

from normgeom import ScaleKind, scale_invariance
from tests.symmetry.models import BATCH, Mixed, before, seeded


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_models_of_any_type_are_decided_in_float64(dtype):
    one = scale_invariance(before(nn.LayerNorm(6)).to(dtype), BATCH.to(dtype))["0.weight"]
    assert (one.kind, one.tolerance < 1e-11) == (ScaleKind.WHOLE, True)


def test_a_model_that_runs_in_float32_only_has_an_honest_floor():
    class Own(nn.Module):
        def forward(self, a):
            return a @ torch.arange(12.0).reshape(6, 2)

    net = seeded(lambda: nn.Sequential(nn.Linear(4, 6, bias=False), nn.LayerNorm(6), nn.Tanh(), Own()))
    one = scale_invariance(net, BATCH)["0.weight"]
    assert one.kind is ScaleKind.WHOLE
    assert 1e-6 < one.tolerance < 1e-3


def test_outputs_that_are_rounding_decide_nothing():
    class Zero(nn.Module):
        def forward(self, a):
            return nn.functional.layer_norm(a, (6,)).sum(1)

    with pytest.raises(ValueError, match="a rounding of the parameters changes the outputs by"):
        scale_invariance(before(Zero())[:2], BATCH)


def test_two_calls_give_the_same_numbers():
    net = seeded(Mixed)
    assert scale_invariance(net, BATCH) == scale_invariance(net, BATCH)


def test_the_table_and_what_cannot_be_found():
    found = scale_invariance(before(nn.LayerNorm(6)), BATCH)
    assert "0.weight" in repr(found)
    assert repr(found).endswith("mode: train")
    assert found.to_frame()["kind"].tolist() == ["whole", "none", "none", "none", "none"]
    with pytest.raises(KeyError, match="no block '9'"):
        found["9"]
    with pytest.raises(TypeError, match=r"an nn\.Module; got function"):
        scale_invariance(lambda x: x, BATCH)
    with pytest.raises(ValueError, match="give `select` to pick them"):
        scale_invariance(before(nn.LayerNorm(6)), BATCH, select=lambda out: out.argmax())
    with pytest.raises(ValueError, match="no parameter 'w'"):
        scale_invariance(before(nn.LayerNorm(6)), BATCH, blocks=["w"])


def test_a_model_that_cannot_be_copied_says_why():
    class Locked(nn.Linear):
        def __deepcopy__(self, memo):
            raise RuntimeError("a handle that cannot be copied")

    with pytest.raises(ValueError, match="a handle that cannot be copied"):
        scale_invariance(Locked(4, 2), BATCH)
