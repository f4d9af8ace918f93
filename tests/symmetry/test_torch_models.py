"""Layers of torch and the project's cells, against symmetries derived on paper, and near misses."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import normgeom as ng
from tests.symmetry import derived
from tests.symmetry.scan_oracles import exponent_matrix
from tests.symmetry.scanned import BATCH, Fn, seeded

SEQUENCES = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(3))


def attention(at, out):
    """A dead key bias, queries against keys, values against the output projection."""
    q, k, v = (f"{at}.in_proj_{{}}[{8 * i}:{8 * i + 8}]" for i in range(3))
    return [
        k.format("bias"),
        f"{q.format('weight')} {q.format('bias')} | {k.format('weight')}",
        f"{v.format('weight')} {v.format('bias')} | {out}.out_proj.weight",
    ]


def feedforward(at, norm):
    """A relu pair, and a norm whose output is read by the pair and added to what it writes."""
    pair = f"{at}.linear1.{{weight,bias}} | {at}.linear2.weight"
    return [pair, f"{norm}.{{weight,bias}} {at}.linear1.bias {at}.linear2.bias"]


ENCODER, DECODER = "encoder.layers.0", "decoder.layers.0"
CROSS = f"{DECODER}.multihead_attn"
TRANSFORMER = [
    *attention(f"{ENCODER}.self_attn", f"{ENCODER}.self_attn"),
    *feedforward(ENCODER, f"{ENCODER}.norm1"),
    f"{ENCODER}.norm2.{{weight,bias}}",
    f"encoder.norm.{{weight,bias}} | {CROSS}.in_proj_weight[8:16] {CROSS}.in_proj_weight[16:24]",
    *attention(f"{DECODER}.self_attn", f"{DECODER}.self_attn"),
    *attention(CROSS, CROSS),
    f"{DECODER}.norm1.{{weight,bias}} {CROSS}.out_proj.{{weight,bias}} | {CROSS}.in_proj_weight[0:8]",
    *feedforward(DECODER, f"{DECODER}.norm2"),
    f"{DECODER}.norm3.{{weight,bias}}",
]


class ReluRNN(nn.Module):
    """A recurrent layer that is positively homogeneous, and a head."""

    def __init__(self):
        super().__init__()
        self.core, self.head = nn.RNN(8, 6, nonlinearity="relu", batch_first=True), nn.Linear(6, 2)

    def forward(self, x):
        return {"logits": self.head(self.core(x)[0])}


def normed(make, *layers):
    return lambda: nn.Sequential(make(nn.Linear(4, 6)), *layers, nn.Linear(6, 2))


def spectral():
    return seeded(normed(parametrizations.spectral_norm, nn.ReLU())).eval()


def cell(kind):
    return lambda: nn.Sequential(kind(8, 6), Fn(lambda out: out[0]), nn.Linear(6, 2))


V = "0.parametrizations.weight.original"
CASES = {
    "Transformer": (lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval(), TRANSFORMER),
    "LSTM": (lambda: nn.LSTM(8, 4), []),
    "GRU": (lambda: nn.GRU(8, 4), []),
    "relu RNN": (ReluRNN, ["core.weight_ih_l0 core.bias_ih_l0 core.bias_hh_l0 | head.weight"]),
    "weight norm": (
        normed(parametrizations.weight_norm, nn.ReLU()),
        [f"{V}1", f"{V}0 0.bias | 2.weight"],
    ),
    "weight norm, tanh": (normed(parametrizations.weight_norm, nn.Tanh()), [f"{V}1"]),
    "spectral norm": (spectral, ["0.parametrizations.weight.original"]),
    "depthwise": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, groups=8, bias=False),
            nn.BatchNorm2d(8),
            nn.Tanh(),
        ),
        ["0.weight", "3.weight", "1.{weight,bias}"],
    ),
    "instance norm": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(3, 4, 3),
            nn.InstanceNorm2d(4, affine=True),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(4, 2, 3),
        ),
        ["0.weight", "0.bias", "1.{weight,bias} | 3.weight"],
    ),
    "LN-LSTM": (
        cell(ng.LNLSTM),
        ["0.layer0.weight_input", "0.layer0.weight_recurrent"],
    ),
    "LN-RNN": (cell(ng.LNRNN), ["0.layer0.weight_input 0.layer0.weight_recurrent"]),
}
IMAGES = ("depthwise", "instance norm")


def batch_of(name):
    if name == "Transformer":
        return SEQUENCES, SEQUENCES[:, :4]
    if name in IMAGES:
        return torch.randn(3, 3, 6, 6, generator=torch.Generator().manual_seed(4))
    return BATCH if "norm" in name else SEQUENCES


@pytest.mark.parametrize("name", CASES)
def test_the_symmetries_are_those_derived_on_paper(name):
    make, texts = CASES[name]
    found = ng.scan(seeded(make), batch_of(name))
    wanted = derived.rows(texts, [one.block for one in found.blocks])
    matrix = exponent_matrix(found).reshape(-1, len(found.blocks))
    assert len(matrix) == len(texts) == np.linalg.matrix_rank(wanted)
    assert np.linalg.matrix_rank(np.vstack([matrix, wanted])) == len(texts)
    assert found.findings == ()


def labels(make, batch=BATCH, kind="absorbed_shifts"):
    return [one.label for one in getattr(ng.scan(seeded(make), batch), kind)]


@pytest.mark.parametrize(
    ("between", "wanted"),
    [
        (nn.Identity(), ["0.bias·+1 2.bias·-1W"]),
        (nn.LayerNorm(6), ["1.bias·+1 2.bias·-1W"]),
        (nn.LayerNorm(6, elementwise_affine=False), []),
        (nn.ReLU(), []),
        (Fn(lambda a: a + 1e-6 * a.square()), []),
    ],
)
def test_a_bias_takes_away_what_reaches_it_linearly(between, wanted):
    assert labels(lambda: nn.Sequential(nn.Linear(4, 6), between, nn.Linear(6, 2))) == wanted


@pytest.mark.parametrize(("padding", "wanted"), [(0, ["0.bias·+1 1.bias·-1W"]), (1, [])])
def test_zero_padding_breaks_a_shift_of_channels(padding, wanted):
    images = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    make = lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 5, 3, padding=padding), nn.Tanh())  # noqa: E731
    assert labels(make, images) == wanted


def test_a_wrong_weight_does_not_take_the_shift_away():
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 2))).double()
    (found,) = ng.scan(model, BATCH.double()).absorbed_shifts
    assert (found.exponents, found.through) == ({"1.bias": 1, "2.bias": -1}, {"2.bias": "2.weight"})
    own, shift = dict(model.named_parameters()), torch.randn(6, dtype=torch.float64)
    before = model(BATCH.double())
    for weight, small in ((own["2.weight"], True), (1.001 * own["2.weight"], False)):
        moved = {"1.bias": own["1.bias"] + shift, "2.bias": own["2.bias"] - weight @ shift}
        after = torch.func.functional_call(model, moved, (BATCH.double(),))
        assert bool((after - before).abs().max() < 1e-12) == small


def test_the_gates_of_a_gru_do_not_share_their_biases():
    assert labels(lambda: nn.GRU(8, 4), SEQUENCES, "joint_shifts") == []
    assert len(labels(lambda: nn.LSTM(8, 4, num_layers=2), SEQUENCES, "joint_shifts")) == 2


def test_units_of_gains_that_batch_norm_follows_go_along_with_their_readers():
    convolutions = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4), nn.Tanh()
    )
    (gain,) = ng.scan(seeded(convolutions), batch_of("depthwise")).joint
    assert (gain.by, gain.companions, gain.rule) == ("unit", {"3.weight": -1}, "gain before a norm")
    (gain,) = ng.scan(seeded(CASES["depthwise"][0]), batch_of("depthwise")).joint
    assert (gain.by, gain.companions) == ("unit", {})  # a filter reads its own channel


def test_a_unit_that_a_rectifier_shuts_is_not_unused():
    def shut():
        net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
        net[0].bias.data[:2] = -100.0
        return net

    found = ng.scan(seeded(shut), BATCH)
    assert [part.text for one in found.blocks for part in one.parts] == []
    assert [one.label for one in found.joint] == ["0.weight^+1 0.bias^+1 2.weight^-1"]


def test_nothing_is_claimed_of_a_layer_that_is_shut():
    def shut():
        net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
        nn.init.constant_(net[0].bias, -100.0)
        return net

    found = ng.scan(seeded(shut), BATCH)
    assert (found.nullity, found.dead) == (0, ())
    assert [one.block for one in found.blocks if one.shut] == ["0.weight", "0.bias", "2.weight"]
    assert "nothing is claimed of it; give another batch" in found.findings[0]


def test_dropout_with_a_fixed_mask_keeps_a_relu_pair():
    make = lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2))  # noqa: E731
    assert labels(make, kind="joint") == ["0.weight^+1 0.bias^+1 3.weight^-1"]


def test_words_of_powers_and_of_single_numbers():
    power = Fn(lambda a: a.abs() ** 1.5)
    make = lambda: nn.Sequential(nn.Linear(4, 6, bias=False), power, nn.Linear(6, 2, bias=False))  # noqa: E731
    (found,) = ng.scan(seeded(make), BATCH).joint
    assert found.label == "0.weight^+2 2.weight^-3"
    assert "0.weight times c^2, 2.weight over c^3" in found.why
    tempered = lambda: nn.Sequential(Fn(lambda a: a, 1), nn.Linear(4, 3, bias=False))  # noqa: E731
    (found,) = ng.scan(seeded(tempered), BATCH).joint
    assert (found.rule, found.label) == ("scalar factor", "0.w^+1 1.weight^-1")
