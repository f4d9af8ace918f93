"""Blocks and their parts, types, outputs and inputs of any kind, and a model that is left as found."""

import copy

import pytest
import torch
from torch import nn

import normgeom as ng
from tests.symmetry.scanned import BATCH, Fn, seeded


class Counting(nn.Module):
    """Counts its calls outside of buffers."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 2), 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) * (1 + 1e-4 * self.calls)


PAIR = ["0.weight^+1 0.bias^+1 2.weight^-1"]


def test_what_the_outputs_do_not_depend_on_is_dead():
    found = ng.scan(seeded(lambda: Fn(lambda a: a * 0 + 1, 4)), BATCH)
    assert [one.block for one in found.dead] == ["w"]


def test_the_degree_of_a_block():
    found = ng.scan(seeded(lambda: nn.Sequential(nn.Linear(4, 6, bias=False), Fn(lambda a: a**3))), BATCH)
    assert found["0.weight"].scale.degree == 3
    assert found["0.weight"].scale.text == "✗ ∝c^3"


def test_stacked_queries_keys_and_values_are_blocks_of_their_own():
    layer = seeded(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))
    found = ng.scan(layer, torch.randn(3, 5, 8))
    assert [one.block for one in found.dead] == ["self_attn.in_proj_bias[8:16]"]
    labels = [one.label for one in found.joint]
    assert (
        "self_attn.in_proj_weight[0:8]^+1 self_attn.in_proj_weight[8:16]^-1 self_attn.in_proj_bias[0:8]^+1"
        in labels
    )
    assert {"Q/K pair", "V/O pair", "relu pair"} <= {one.rule for one in found.joint}


@pytest.mark.parametrize(
    ("module", "batch", "kind", "free"),
    [
        (nn.ConvTranspose2d(3, 4, 3, bias=False), torch.randn(6, 3, 5, 5), "filter", 4),
        (nn.Conv2d(3, 4, 3, bias=False), torch.randn(6, 3, 5, 5), "filter", 4),
    ],
)
def test_filters_lie_on_the_axis_of_the_units(module, batch, kind, free):
    model = seeded(lambda: nn.Sequential(module, nn.BatchNorm2d(4), nn.Tanh()))
    (part,) = ng.scan(model, batch)["0.weight"].parts
    assert (part.kind, len(part.free), part.count) == (kind, free, free)


def test_tokens_that_do_not_occur_are_unused():
    model = seeded(lambda: nn.Sequential(nn.Embedding(5, 6), nn.LayerNorm(6), nn.Tanh()))
    found = ng.scan(model, torch.tensor([[0, 1, 3]]))["0.weight"]
    tokens = next(part for part in found.parts if part.kind == "token")
    assert (tokens.free, tokens.unused, tokens.count) == ((0, 1, 3), (2, 4), 5)


def test_gates_of_a_cell_with_a_norm_for_each():
    cell = seeded(lambda: ng.LNLSTM(4, 6, placement=ng.Placement(per_gate=True)))
    found = ng.scan(cell, torch.randn(5, 3, 4))["layer0.weight_input"]
    assert found.scale.holds
    gates = [part for part in found.parts if part.kind == "gate"]
    assert [(part.move, part.free) for part in gates] == [(ng.Move.SCALE, (0, 1, 2, 3))]
    shared = ng.scan(seeded(lambda: ng.LNLSTM(4, 6)), torch.randn(5, 3, 4))["layer0.weight_input"]
    assert (shared.scale.holds, shared.parts) == (True, ())


def test_gates():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden_size = 3
            self.weight_ih = nn.Parameter(torch.randn(12, 4))

        def forward(self, x):
            i, f, g, o = (x @ self.weight_ih.T).chunk(4, -1)
            return torch.cat([nn.functional.layer_norm(i, (3,)), f, g.tanh(), o], -1)

    parts = ng.scan(seeded(Cell), BATCH)["weight_ih"].parts
    assert [(p.kind, p.move, p.free) for p in parts if p.kind == "gate"] == [
        ("gate", ng.Move.SCALE, (0,)),
        ("gate", ng.Move.SHIFT_UNITS, (0,)),
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(
            nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, 2)
        ),
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 6)), nn.LayerNorm(6)),
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 6)), nn.Tanh()),
    ],
)
def test_the_model_is_left_bit_identical(make):
    model = seeded(make)
    model[0].bias.grad = torch.ones(6)
    model[0].bias.requires_grad_(False)
    saved, rng = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    ng.scan(model, BATCH)
    torch.testing.assert_close(model.state_dict(), saved, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), rng)
    assert model.training
    assert torch.equal(model[0].bias.grad, torch.ones(6))
    assert [p.requires_grad for p in model.parameters()].count(False) == 1


def test_two_scans_are_the_same_and_another_seed_finds_the_same():
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2)))
    first, second = ng.scan(model, BATCH), ng.scan(model, BATCH)
    assert first.to_json() == second.to_json()
    other = ng.scan(model, BATCH, generator=torch.Generator().manual_seed(7))
    assert [one.label for one in other.joint] == [one.label for one in first.joint]
    assert other.to_json() != first.to_json()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_models_of_any_type(dtype):
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))).to(dtype)
    found = ng.scan(model, BATCH.to(dtype))
    assert ([one.label for one in found.joint], found.dtype) == (PAIR, "float64")


def test_a_model_that_casts_inside_is_decided_in_float64():
    cast = Fn(lambda a: (a.float() / a.float().std(-1, keepdim=True)).to(a.dtype))
    scale = ng.scan(seeded(lambda: nn.Sequential(nn.Linear(4, 6, bias=False), cast)), BATCH)["0.weight"].scale
    assert (scale.holds, scale.tolerance < 1e-11) == (True, True)


def test_a_model_that_runs_in_float32_only_has_an_honest_floor():
    fixed = Fn(lambda a: a @ torch.arange(12.0).reshape(6, 2))
    found = ng.scan(seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), fixed)), BATCH)
    assert (found.dtype, [one.label for one in found.joint]) == (
        "float32",
        PAIR,
    )
    assert 1e-6 < found.joint[0].tolerance < 1e-3


def test_tied_weights_move_together():
    def tied():
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        net[2].weight = net[0].weight
        return net

    found = ng.scan(seeded(tied), BATCH)
    assert [one.block for one in found.blocks] == ["0.weight", "0.bias", "2.bias"]
    assert found.nullity == 0


def test_scalars_outputs_of_one_number_and_zero_weights():
    class Temperature(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.layer = nn.Parameter(torch.tensor(2.0)), nn.Linear(4, 3, bias=False)

        def forward(self, x):
            return (self.scale * self.layer(x)).square().sum()

    model = seeded(Temperature)
    nn.init.zeros_(model.layer.weight)
    assert [one.label for one in ng.scan(model, BATCH).joint] == ["scale^+1 layer.weight^-1"]


@pytest.mark.parametrize(
    ("model", "batch", "error", "message"),
    [
        (
            lambda: nn.Linear(4, 2),
            torch.ones(3, 5),
            ValueError,
            "Linear cannot be scanned: calling it on the batch",
        ),
        (lambda: nn.Linear(4, 2), {"z": BATCH}, ValueError, "TypeError: .*unexpected keyword argument 'z'"),
        (Counting, BATCH, ValueError, "must return the same outputs whenever it is called"),
        (lambda: nn.Tanh(), BATCH, ValueError, "must have floating-point parameters; it has none"),
        (lambda: Fn(lambda a: a.argmax(), 4), BATCH, ValueError, "give `select` to pick them"),
    ],
)
def test_a_model_that_cannot_be_scanned_says_why(model, batch, error, message):
    with pytest.raises(error, match=message):
        ng.scan(seeded(model), batch)


def test_what_is_not_a_module_says_so():
    with pytest.raises(TypeError, match=r"must be an nn\.Module; got function"):
        ng.scan(lambda x: x, BATCH)


def test_progress_counts_up_to_the_end():
    seen = []
    ng.scan(seeded(lambda: nn.Linear(4, 2)), BATCH, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert all(done <= total for done, total in seen)
    assert seen[-1][0] == seen[-1][1]
