"""Scale invariance is found by rescaling, whatever the layers are called, and near misses are refused."""

import copy

import pytest
import torch
from torch import nn

import normgeom as ng
from normgeom import ScaleKind, scale_invariance
from tests.symmetry.models import BATCH, Attention, LayerNormLSTM, Mixed, Renorm, before, kinds, seeded


def test_parameters_are_told_apart_by_what_they_do():
    """DYN-08: neither classes nor names nor shapes find the custom norm's scale and weight norm's gain."""
    found = scale_invariance(seeded(Mixed), BATCH)
    held = [one.block for one in found if one.holds]
    assert held == ["a.weight", "b.parametrizations.weight.original1"]
    assert found["a.weight"].kind is ScaleKind.WHOLE
    assert found["b.parametrizations.weight.original1"].kind is ScaleKind.ROW
    assert all(one.confirmed for one in found)


@pytest.mark.parametrize(
    ("norm", "kind"),
    [
        (nn.LayerNorm(6, eps=0.0), "whole"),
        (nn.RMSNorm(6), "whole"),
        (nn.GroupNorm(2, 6), "whole"),
        (nn.BatchNorm1d(6), "row"),
        (nn.Identity(), "none"),
        (nn.Tanh(), "none"),
        (nn.BatchNorm1d(6).eval(), "none"),
    ],
    ids=repr,
)
def test_each_norm_has_its_kind(norm, kind):
    assert scale_invariance(before(norm), BATCH)["0.weight"].kind == kind


@pytest.mark.parametrize("eps", [1e-5, 1e-3])
def test_eps_is_taken_away_for_the_verdict_and_measured(eps):
    one = scale_invariance(before(nn.LayerNorm(6, eps=eps)), BATCH)["0.weight"]
    assert one.kind is ScaleKind.WHOLE
    assert one.deviation <= one.tolerance < 1e-11
    assert eps / 10 < one.breaking < 1000 * eps


def test_without_eps_nothing_is_broken():
    one = scale_invariance(before(nn.LayerNorm(6, eps=0.0)), BATCH)["0.weight"]
    assert one.breaking == one.deviation


def test_a_bias_before_layer_norm_leaves_nothing():
    net = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6, eps=0.0)))
    assert kinds(net, BATCH) == {}


def test_a_zero_bias_is_not_taken_for_an_invariant_one():
    net = before(nn.LayerNorm(6))
    assert not net[1].bias.any()
    assert scale_invariance(net, BATCH)["1.bias"].kind is ScaleKind.NONE


def test_layers_before_a_zero_gain_are_not_taken_for_unused():
    net = before(nn.LayerNorm(6))
    nn.init.zeros_(net[1].weight)
    assert kinds(net, BATCH) == {"0.weight": "whole"}


def test_a_gradient_of_zero_alone_does_not_decide():
    net = before(Renorm(6))
    one = scale_invariance(net, BATCH)["0.weight"]
    assert one.kind is ScaleKind.NONE
    assert abs(one.cosine) < 1e-9
    assert not one.confirmed


class OnTheSphere(nn.Module):
    """A function whose slope along w is zero at ‖w‖ = 1 and nowhere else."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64))

    def forward(self, x):
        return x @ self.w / self.w.norm() + (self.w.norm() - 1) ** 2


def test_a_slope_that_is_zero_by_accident_does_not_decide():
    one = scale_invariance(OnTheSphere(), torch.randn(5, 3, dtype=torch.float64))["w"]
    assert one.kind is ScaleKind.NONE
    assert not one.confirmed


def test_a_gradient_along_minus_w_is_not_small():
    class Length(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([3.0, 4.0]))

        def forward(self, x):
            return -x * self.w.square().sum()

    one = scale_invariance(Length(), torch.ones(1, 1))["w"]
    assert abs(one.cosine) == pytest.approx(1.0)
    assert (one.kind, one.confirmed) == (ScaleKind.NONE, True)


def test_recurrent_modules_and_packed_sequences():
    lstm = seeded(lambda: nn.LSTM(3, 4))
    padded, lengths = torch.randn(6, 2, 3), torch.tensor([6, 4])
    packed = nn.utils.rnn.pack_padded_sequence(padded, lengths)
    assert kinds(lstm, padded) == {}
    assert kinds(lstm, packed, select=lambda out: out[0].data) == {}
    assert scale_invariance(lstm, padded).blocks[0].tolerance < 1e-11


def test_a_detached_statistic_is_reported():
    class Detached(nn.Module):
        def forward(self, a):
            return a / a.std(-1, keepdim=True).detach()

    one = scale_invariance(before(Detached()), BATCH)["0.weight"]
    assert one.kind is ScaleKind.WHOLE
    assert abs(one.cosine) > 0.1
    assert not one.confirmed


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9])
def test_a_small_residual_path_is_seen(size):
    class Leak(nn.Module):
        def forward(self, a):
            return (a - a.mean(-1, keepdim=True)) / a.std(-1, keepdim=True) + size * a

    one = scale_invariance(before(Leak()), BATCH)["0.weight"]
    assert one.kind is ScaleKind.NONE
    assert one.deviation > one.tolerance


def test_lstm_from_a_zero_state_and_its_gates():
    found = scale_invariance(seeded(LayerNormLSTM), torch.randn(5, 3, 3))
    assert [one.block for one in found if one.holds] == ["wx.weight", "wh.weight"]
    gates = scale_invariance(seeded(LayerNormLSTM), torch.randn(5, 3, 3), blocks=[ng.gates("wh.weight", 4)])
    assert [one.kind for one in gates] == ["none"] * 4


def test_unused_and_one_of_several_heads():
    net, x = seeded(Attention), torch.randn(3, 5, 8)
    found = scale_invariance(net, x, blocks=[ng.heads("q.weight", 2), "k.bias", "v.bias"])
    assert {one.block: str(one.kind) for one in found} == {
        "q.weight[0:4]": "none",  # its bias is not scaled with it
        "q.weight[4:8]": "none",
        "k.bias": "none",
        "v.bias": "none",
    }
    nn.init.zeros_(net.q.bias)
    net.q.bias = None
    heads = scale_invariance(net, x, blocks=[ng.heads("q.weight", 2)])
    assert [one.kind for one in heads] == ["whole", "whole"]


def test_a_dead_key_bias_is_unused():
    found = scale_invariance(seeded(lambda: Attention(False)), torch.randn(3, 5, 8))
    assert found["k.bias"].kind is ScaleKind.UNUSED
    assert found["k.bias"].confirmed
    assert not found["k.bias"].holds


def test_rows_are_decided_one_by_one():
    class FirstTwo(nn.Module):
        def forward(self, a):
            return torch.cat([a[:, :2] / a[:, :2].std(0), a[:, 2:]], 1)

    found = scale_invariance(before(FirstTwo()), BATCH, blocks=[ng.rows("0.weight")])
    assert [str(one.kind) for one in found] == ["whole"] * 2 + ["none"] * 4
    assert scale_invariance(before(FirstTwo()), BATCH)["0.weight"].kind is ScaleKind.NONE


def test_rows_with_a_gradient_of_zero_are_told_apart_too():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.renorm = Renorm(3)

        def forward(self, a):
            return torch.cat([a[:, :3] / a[:, :3].std(0, correction=0), self.renorm(a[:, 3:])], 1)

    found = scale_invariance(before(Half()), BATCH, blocks=[ng.rows("0.weight")])
    assert [str(one.kind) for one in found] == ["whole"] * 3 + ["none"] * 3
    assert [one.confirmed for one in found] == [True] * 3 + [False] * 3


def test_convolutions_filter_by_filter():
    net = seeded(lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Flatten()))
    x = torch.randn(6, 3, 5, 5)
    assert scale_invariance(net, x)["0.weight"].kind is ScaleKind.ROW
    filters = scale_invariance(net, x, blocks=[ng.rows("0.weight")])
    assert [str(one.kind) for one in filters] == ["whole"] * 4


def test_dropout_keeps_its_mask_and_the_model_is_left_as_found():
    net = before(nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.5)))
    saved, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    assert scale_invariance(net, BATCH)["0.weight"].kind is ScaleKind.ROW
    torch.testing.assert_close(net.state_dict(), saved, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert net[0].weight.grad is None
    assert net[1][0].eps == 1e-5


def test_dicts_selectors_and_the_old_weight_norm():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.out = nn.Linear(4, 6, bias=False), nn.LayerNorm(6)

        def forward(self, x, *, scale):
            a = self.layer(x)
            return {"raw": a, "normed": self.out(a) * scale}

    net = seeded(Both)
    batch = {"x": BATCH, "scale": torch.tensor(2.0)}
    assert kinds(net, batch) == {}
    assert kinds(net, batch, select=lambda out: out["normed"]) == {"layer.weight": "whole"}
    with pytest.warns(FutureWarning, match="weight_norm"):
        old = nn.utils.weight_norm(nn.Linear(4, 6))
    assert kinds(old, BATCH) == {"weight_v": "row"}


def test_tied_weights_move_together():
    net = seeded(
        lambda: nn.Sequential(nn.Linear(4, 4, bias=False), nn.LayerNorm(4), nn.Linear(4, 4, bias=False))
    )
    assert kinds(net, BATCH) == {"0.weight": "whole"}
    net[2].weight = net[0].weight
    assert kinds(net, BATCH) == {}
    with pytest.raises(ValueError, match=r"tied to '0\.weight': use that name"):
        scale_invariance(net, BATCH, blocks=["2.weight"])
