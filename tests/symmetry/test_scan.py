"""A scan reaches the counts found independently, and says of each symmetry which it is."""

import copy
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

import normgeom as ng
from tests.golden.scan_models import REFERENCES, reference
from tests.symmetry import oracles
from tests.symmetry.scanned import Fn, Residual, TwoOutputs, seeded

BATCH = torch.randn(8, 4, generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def maps():
    return {name: ng.scan(*reference(name)) for name in REFERENCES}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference_counts(maps, name):
    found, wanted = maps[name], REFERENCES[name]
    assert found.nullity == wanted.nullity
    assert {one.block for one in found.single} == set(wanted.single)
    assert {one.block for one in found.dead} == set(wanted.dead)
    free = {
        b.block for b in found.blocks if ng.Move.SHIFT_UNITS in b.moves and b.moves[ng.Move.SHIFT_UNITS].holds
    }
    assert {n for n in free if n.endswith("weight") and len(found[n].shape) > 1 and n != "tok.weight"} == set(
        wanted.units
    )
    assert (found.findings, found.dtype) == ((), "float64")
    assert all(verdict.confirmed for one in found.blocks for verdict in one.moves.values())


@pytest.mark.parametrize("name", REFERENCES)
def test_the_null_space_is_that_of_a_dense_jacobian(maps, name):
    model, batch = reference(name)
    matrix = oracles.exponent_matrix(maps[name])
    null = oracles.radial_null_space(model, batch)
    assert np.linalg.matrix_rank(matrix) == len(matrix) == null.shape[1]
    assert np.abs(matrix.T - null @ (null.T @ matrix.T)).max() < 1e-6


@pytest.mark.parametrize("name", REFERENCES)
def test_a_finite_transform_of_the_users_model_confirms_each(maps, name):
    model, batch = reference(name)
    for joint in maps[name].joint:
        assert oracles.scaled_deviation(model, batch, joint.exponents, 1.7) < 1e-11


@pytest.mark.parametrize("name", REFERENCES)
def test_a_wrong_exponent_is_not_confirmed(maps, name):
    model, batch = reference(name)
    for joint in maps[name].joint:
        wrong = dict(joint.exponents)
        wrong[next(iter(wrong))] += 1
        assert oracles.scaled_deviation(model, batch, wrong, 1.7) > 1e-6


@pytest.mark.parametrize("name", REFERENCES)
def test_cost_is_a_few_passes_a_block(maps, name):
    found = maps[name]
    # Passes that do not depend on the number of blocks: points, rounding, check of the gradients.
    assert found.forwards + 2 * found.backwards <= 4 * len(found.blocks) + 40


RULES = {
    "pre-LN": {
        "residual stream: embeddings with all residual writers": 1,
        "gain/next weight pair": 5,
        "Q/K pair": 2,
        "V/O pair": 2,
    },
    "pre-LN without biases, relu": {
        "residual stream: embeddings with all residual writers": 1,
        "gain/next weight pair": 5,
        "Q/K pair": 2,
        "V/O pair": 2,
        "relu pair": 2,
    },
    "RMSNorm, normalized queries and keys": {
        "residual stream: embeddings with all residual writers": 1,
        "gain/next weight pair": 5,
        "V/O pair": 2,
    },
    "post-LN": {
        "residual stream with its readers": 4,
        "gain/next weight pair": 1,
        "Q/K pair": 2,
        "V/O pair": 2,
    },
    "LN-LSTM": {},
    "LN-LSTM, one norm": {"one norm": 1},
    "batch norm": {"residual stream: all writers": 1, "gain/next weight pair": 1},
    "group norm": {"one norm": 1, "gain/next weight pair": 1, "residual stream with its readers": 1},
}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_words(maps, name):
    assert Counter(one.rule for one in maps[name].joint) == RULES[name]


def test_words_name_the_blocks(maps):
    found = {one.label: one for one in maps["pre-LN"].joint}
    pair = found["nf.weight^+1 nf.bias^+1 head.weight^-1"]
    assert (pair.by, pair.why) == ("unit", "the output of nf is read by head.weight alone")
    keys = found["b.0.a.q.weight^+1 b.0.a.q.bias^+1 b.0.a.k.weight^-1"]
    assert keys.by == "unit"
    assert "the scores are products of queries and keys" in keys.why
    assert maps["pre-LN"]["b.0.a.k.bias"].why == "dead parameter: the outputs do not depend on it"


def test_parts(maps):
    filters = [(part.kind, part.move, len(part.free)) for part in maps["batch norm"]["c1.weight"].parts]
    assert filters == [("filter", ng.Move.SCALE, 8)]
    heads = maps["RMSNorm, normalized queries and keys"]["b.0.a.q.weight"].parts
    assert [(part.kind, len(part.free)) for part in heads] == [("head", 2)]
    assert maps["group norm"]["c1.weight"].parts == ()


def test_joint_shifts(maps):
    assert [one.label for one in maps["pre-LN"].joint_shifts] == ["pos·+1 tok.weight·-1"]
    lstm = {one.label for one in maps["LN-LSTM"].joint_shifts}
    assert lstm == {"bias·+1 lx.bias·-1", "lx.bias·+1 lh.bias·-1"}
    found = ng.scan(seeded(lambda: nn.LSTM(3, 4)), torch.randn(5, 2, 3))
    assert [one.label for one in found.joint_shifts] == ["bias_ih_l0·+1 bias_hh_l0·-1"]
    assert found.nullity == 0


def joint(*layers, batch=BATCH, **options):
    model = seeded(lambda: nn.Sequential(*layers))
    return [one.label for one in ng.scan(model, batch, **options).joint]


PAIR = ["0.weight^+1 0.bias^+1 2.weight^-1"]


@pytest.mark.parametrize(
    ("between", "wanted"),
    [
        (nn.ReLU(), PAIR),
        (nn.LeakyReLU(), PAIR),
        (nn.PReLU(6), PAIR),
        (Fn(torch.abs), PAIR),
        (nn.Identity(), PAIR),
        (Fn(lambda a: a.relu().square()), ["0.weight^+1 0.bias^+1 2.weight^-2"]),
        (nn.GELU(), []),
        (nn.Tanh(), []),
        (Fn(lambda a: a.clamp(-1, 1)), []),
        (Fn(lambda a: a.relu() + 1e-6), []),
        (Fn(lambda a: a.relu() + 1e-8 * a.square()), []),
        (nn.Softplus(beta=30), []),
    ],
)
def test_what_lies_between_two_layers(between, wanted):
    assert joint(nn.Linear(4, 6), between, nn.Linear(6, 2)) == wanted


def evaluated(model):
    """In evaluation, with running statistics of a batch."""
    model(BATCH)
    return model.eval()


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (lambda: nn.Linear(4, 3), BATCH),
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2)), BATCH),
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.Softmax(-1), nn.Linear(6, 6), nn.Tanh()), BATCH),
        (lambda: nn.GRU(4, 3), BATCH[:, None]),
        (lambda: evaluated(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh())), BATCH),
    ],
)
def test_models_that_must_come_out_empty(model, batch):
    found = ng.scan(seeded(model), batch)
    assert (found.nullity, found.single, found.joint, found.findings) == (0, (), (), ())


def test_running_means_of_zero_leave_a_gain_pair():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh()).eval()
    (pair,) = ng.scan(model, BATCH).joint
    assert set(pair.exponents) == {"0.weight", "0.bias", "1.weight"}


def test_a_small_residual_path_around_a_norm():
    found = ng.scan(seeded(lambda: Residual(0.0)), BATCH)
    assert found["a.weight"].scale.holds
    found = ng.scan(seeded(lambda: Residual(1e-7)), BATCH)
    assert not found["a.weight"].scale.holds
    assert found["a.weight"].scale.deviation > found["a.weight"].scale.tolerance


def test_an_auxiliary_output_and_a_selector():
    model = seeded(TwoOutputs)
    assert ng.scan(model, BATCH).nullity == 0
    picked = ng.scan(model, {"x": BATCH}, select=lambda out: out.main)
    assert [one.label for one in picked.joint] == ["a.weight^+1 a.bias^+1 c.weight^-1"]


def test_eps_of_a_module_a_function_and_the_code():
    def normed(eps):
        return lambda a: (a - a.mean(-1, keepdim=True)) / (a.var(-1, keepdim=True) + eps).sqrt()

    layers = {
        "module": nn.LayerNorm(6),
        "function": Fn(lambda a: nn.functional.layer_norm(a, (6,), eps=1e-4)),
        "code": Fn(normed(1e-4)),
        "none": Fn(normed(0.0)),
    }
    found = {
        name: ng.scan(seeded(lambda n=n: nn.Sequential(nn.Linear(4, 6, bias=False), n, nn.Tanh())), BATCH)
        for name, n in layers.items()
    }
    scales = {name: one["0.weight"].scale for name, one in found.items()}
    assert {name: one.symbol for name, one in scales.items()} == {
        "module": "≈",
        "function": "≈",
        "code": "≈",
        "none": "✓",
    }
    assert [name for name, one in scales.items() if one.holds] == ["module", "function", "none"]
    assert (scales["code"].fading, scales["module"].breaking > 1e-7) == (2.0, True)
    assert "an eps in the code" in found["code"].findings[0]


def test_gradients_of_another_function_are_a_finding():
    detached = Fn(lambda a: a / a.std(-1, keepdim=True).detach())
    found = ng.scan(seeded(lambda: nn.Sequential(nn.Linear(4, 6, bias=False), detached, nn.Tanh())), BATCH)
    assert [one.block for one in found.single] == ["0.weight"]
    assert not found["0.weight"].scale.confirmed
    assert found.findings[0].startswith("the gradients of the model are not the slopes of its function")
    assert found.findings[1].startswith("0.weight, scale: the function is unchanged, its slope is")


def test_joint_symmetries_do_not_need_the_gradients():
    straight_through = Fn(lambda a: a.detach().relu() + a - a.detach())
    copied = Fn(lambda a: a.relu() + 0.3 * a.relu().detach())
    assert joint(nn.Linear(4, 6), copied, nn.Linear(6, 2)) == PAIR
    assert joint(nn.Linear(4, 6), straight_through, nn.Linear(6, 2)) == PAIR


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
    assert (found.dtype, [one.label for one in found.joint]) == ("float32", PAIR)
    assert 1e-6 < found.joint[0].tolerance < 1e-3


class OnlyFloat32(nn.Module):
    """Refuses any other type."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        if next(self.model.parameters()).dtype != torch.float32:
            raise RuntimeError("float32 only")
        return self.model(x)


@pytest.mark.parametrize("name", ["pre-LN", "LN-LSTM, one norm", "group norm"])
def test_the_reference_counts_in_float32(name):
    model, batch = reference(name)
    found = ng.scan(OnlyFloat32(model.float()), batch.float() if batch.is_floating_point() else batch)
    assert (found.nullity, found.dtype, found.findings) == (REFERENCES[name].nullity, "float32", ())


def test_a_function_without_a_backward_pass():
    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(context, a):
            return a.relu()

    found = ng.scan(seeded(lambda: nn.Sequential(nn.Linear(4, 6), Fn(Forward.apply), nn.Linear(6, 2))), BATCH)
    assert [one.label for one in found.joint] == PAIR
    assert found.findings[0].startswith("the gradients of the model are not the slopes of its function")


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
