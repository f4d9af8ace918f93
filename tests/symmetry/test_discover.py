import pytest
import torch
from torch import nn

import normgeom as ng
from normgeom.variants import variant
from tests.symmetry import discoverable as layers
from tests.symmetry import oracles

H, D = 4, 3
P = H * D
SCALE, ROWS, SHIFTS, ROW_SHIFTS = "whole scale", "per-row scale", "re-centering", "per-row shift"

# The layer, the options, and its generators by name with their dimensions.
LAYERS = {
    "LayerNorm": (ng.LayerNorm(), {}, {SHIFTS: D * (P + 1), SCALE: 1}),
    "LayerNorm, p = 16": (ng.LayerNorm(), {"inputs": 4}, {SHIFTS: 4 * 17, SCALE: 1}),
    "RMSNorm": (ng.RMSNorm(), {}, {SCALE: 1}),
    "BatchNorm": (ng.BatchNorm(), {}, {ROWS: H}),
    "WeightNorm": (ng.WeightNorm(), {}, {ROWS: H}),
    "GroupNorm": (
        layers.group_norm(2),
        {"units": 6, "inputs": 2},
        {"re-centering by group": 2 * 2 * 13, "per-group scale": 2},
    ),
    "WeightStandardization": (layers.weight_standardization, {}, {ROW_SHIFTS: H * (P + 1), ROWS: H}),
    "SpectralNorm": (layers.spectral_norm, {}, {SCALE: 1}),
    "softmax": (layers.softmax, {}, {SHIFTS: D * (P + 1)}),
    "saturated softmax": (lambda w, x: layers.softmax(40 * w, x), {}, {SHIFTS: D * (P + 1)}),
    "pre-norm": (layers.pre_norm, {}, {ROW_SHIFTS: H * (P + 1)}),
    "linear": (layers.plain, {}, {}),
    "post-norm": (
        layers.post_norm,
        {"inputs": 4},
        {SHIFTS: 4 * 17, "whole scale about a point": 1},
    ),
    "lengths": (layers.lengths, {}, {"rotation SO(4)": 6}),
    "row space": (layers.row_space, {"units": 3, "inputs": 4}, {"GL(3)": 9}),
    "doubly centred": (
        layers.doubly_centred,
        {},
        {SHIFTS: D * (P + 1), ROW_SHIFTS: (H - 1) * (P + 1), SCALE: 1},
    ),
    "stacked logits": (variant("attention logits, no norm"), {}, {"GL(3)": 9}),
    "stacked QK-norm": (variant("QK-norm, RMS"), {}, {"rotation SO(3)": 3, "per-group scale": 2}),
    "constant": (lambda w, x: 1 + 0 * (x @ w.T), {}, {"unused": P * (P + 1)}),
    "constant 0": (lambda w, x: 0 * (x @ w.T), {}, {"unused": P * (P + 1)}),
    "float32 inside": (layers.in_float32, {}, {SHIFTS: D * (P + 1), SCALE: 1}),
}
MODULES = {
    "LayerNorm": (lambda: nn.LayerNorm(4), {SHIFTS: D * (P + 1), SCALE: 1}),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), {ROWS: 4}),
    "BatchNorm1d, eval": (lambda: nn.BatchNorm1d(4).eval(), {}),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), {ROWS: 3}),
    "GroupNorm": (lambda: nn.GroupNorm(2, 6), {"re-centering by group": 2 * 3 * 19, "per-group scale": 2}),
    "RMSNorm": (lambda: nn.RMSNorm(4), {SCALE: 1}),
    "Linear with bias": (lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), {SHIFTS: 39}),
}
HIDDEN = {
    "logits": (layers.attention_logits, {"query": (2, 3), "key": (2, 3)}, {"GL(2)": 4}),
    "wide logits": (layers.attention_logits, {"query": (3, 3), "key": (3, 3)}, {"GL(3)": 9}),
    "qk norm": (layers.qk_norm, {"query": (2, 3), "key": (2, 3)}, {"rotation SO(2)": 1, SCALE: 2}),
    "DyT": (layers.dyt, {"weight": (4, 3), "alpha": ()}, {"joint scale": 1}),
    "gain": (layers.gained, {"weight": (4, 3), "gain": (4,)}, {"joint scale per unit": 4}),
    "two layers": (layers.two_layers, {"up": (2, 3), "down": (3, 2)}, {"GL(2)": 4}),
    "relu": (layers.relu_network, {"up": (4, 3), "down": (2, 4)}, {"joint scale per unit": 4}),
    "determinant": (layers.determinant, {"w": (2, 2)}, {"SL(2)": 6}),
    "powers": (layers.powers, {"a": (), "b": ()}, {"joint scale": 1}),
    "unused": (layers.two_layers, {"up": (1, 3), "down": (3, 1), "k": ()}, {"unused": 8, "joint scale": 1}),
    "affine": (layers.shifted_pair, {"w": (2,)}, {"unnamed": 1}),
}


def dimensions(found):
    counts = {}
    for one in found:
        counts[one.name] = counts.get(one.name, 0) + one.multiplicity
    return counts


@pytest.mark.parametrize("name", LAYERS)
def test_counts(name):
    layer, options, wanted = LAYERS[name]
    found = ng.discover(layer, **options)
    assert dimensions(found) == wanted
    assert found.dimension == sum(wanted.values())
    assert found.clear
    assert found.confirmed == found.found


@pytest.mark.parametrize("name", MODULES)
def test_counts_of_modules(name):
    make, wanted = MODULES[name]
    module = make()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    assert dimensions(ng.discover(module)) == wanted
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


@pytest.mark.parametrize("name", HIDDEN)
def test_counts_with_hidden_parameters(name):
    function, shapes, wanted = HIDDEN[name]
    found = ng.discover(function, parameters=layers.empty(**shapes))
    assert dimensions(found) == wanted
    assert found.confirmed == found.found


@pytest.mark.parametrize(
    ("norm", "method", "units"),
    [
        (ng.LayerNorm(), "layer", 3),
        (ng.RMSNorm(), "rms", 3),
        (ng.BatchNorm(), "batch", 3),
        (ng.WeightNorm(), "weight", 3),
        (ng.NoNorm(), "none", 3),
    ],
)
def test_counts_by_exact_arithmetic(norm, method, units):
    found = ng.discover(norm, units=units, inputs=2, cases=3)
    assert found.dimension == oracles.dimension(method, units, 2, 3)


@pytest.mark.parametrize("name", ["LayerNorm", "GroupNorm", "WeightStandardization", "lengths"])
def test_fields_are_independent_and_annihilated(name):
    layer, options, _ = LAYERS[name]
    found = ng.discover(layer, **options)
    fields = torch.cat([one.fields for one in found])
    assert torch.linalg.matrix_rank(fields.flatten(1)) == len(fields)
    shape = found.shapes["W"]
    w, x = torch.randn(shape).double(), torch.randn(5, shape[1]).double()
    jacobian = torch.func.jacrev(lambda v: ng.as_layer(layer)(v.reshape(shape), x).flatten())(w.flatten())
    values = fields[:, :, :-1] @ w.flatten() + fields[:, :, -1]
    assert (jacobian @ values.T).abs().max() < 1e-10


def test_gl_acts_as_it_says():
    found = ng.discover(layers.attention_logits, parameters=layers.empty(query=(2, 3), key=(2, 3)))
    assert found["GL(2)"].action == "query → M query, key → M⁻ᵀ key"
    assert (
        found["GL(2)"].latex
        == r"\mathrm{query} \to M\mathrm{query},\; \mathrm{key} \to M^{-\top}\mathrm{key}"
    )


def test_blocks_of_rows_act_as_they_say():
    found = ng.discover(variant("attention logits, no norm"))
    assert found["GL(3)"].action == "W[1–3] → M W[1–3], W[4–6] → M⁻ᵀ W[4–6]"
    assert found["GL(3)"].latex == r"W_{1--3} \to MW_{1--3},\; W_{4--6} \to M^{-\top}W_{4--6}"


def test_hidden_pair_as_it_says():
    found = ng.discover(layers.dyt, parameters=layers.empty(weight=(4, 3), alpha=()))
    assert found["joint scale"].action == "weight → c weight, alpha → c⁻¹ alpha"


def test_exponents_in_whole_numbers():
    found = ng.discover(layers.powers, parameters=layers.empty(a=(), b=()))
    assert found["joint scale"].latex == r"a \to c^{3}\,a,\; b \to c^{-2}\,b"


def test_groups_as_they_say():
    found = ng.discover(layers.group_norm(2), units=6, inputs=2)
    assert found["per-group scale"].action == "W[i] → cᵢ W[i] for 1–3; 4–6"
    assert found["re-centering by group"].action == "W → W + 1γᵀ for rows 1–3; 4–6"


def test_centre_as_it_says():
    found = ng.discover(layers.post_norm, inputs=4)
    assert found["whole scale about a point"].action == "W + I → c (W + I)"


def test_unnamed_in_whole_numbers():
    found = ng.discover(layers.shifted_pair, parameters=layers.empty(w=(2,)))
    assert found.unnamed[0].action == "(w[1] + 3) ∂w[1] + (-w[2]) ∂w[2]"
    assert found.generators == ()


def test_batch_renorm_does_not_fool_it():
    found = ng.discover(layers.batch_renorm(4))
    assert found.dimension == 0
    assert [(one.name, one.multiplicity) for one in found.gradient_only] == [(ROWS, 4)]
    assert found.gradient_only[0].deviation > 0.1


def test_units_with_batch_renorm_are_told_from_those_without():
    found = ng.discover(layers.batch_renorm(1))
    assert found.dimension == 3
    assert [one.multiplicity for one in found.gradient_only] == [1]


def test_detached_statistics_are_in_the_function_only():
    found = ng.discover(layers.detached_layer_norm)
    assert found.dimension == 1 + D * (P + 1)
    assert [one.name for one in found.function_only] == [SCALE]


def test_a_function_that_jumps_is_not_confirmed():
    found = ng.discover(nn.GroupNorm(2, 4))  # groups of 2 are signs
    assert found.dimension == 0
    assert dimensions(found.gradient_only) == {"unused": P * (P + 1)}


@pytest.mark.parametrize("eps", [1e-5, 1e-9, 1e-12])
def test_a_hidden_eps_is_near_and_not_counted(eps):
    found = ng.discover(layers.hidden_eps(eps))
    assert found.dimension == D * (P + 1)
    assert [one.name for one in found.up_to_eps] == [SCALE]
    assert eps / 100 < found.up_to_eps[0].deviation < 1e4 * eps


def test_a_known_eps_is_taken_away_and_its_breaking_measured():
    found = ng.discover(ng.as_layer(ng.LayerNorm(), eps=1e-3))
    assert found.dimension == 1 + D * (P + 1)
    assert found[SHIFTS].breaking < 1e-12 < 1e-5 < found[SCALE].breaking


@pytest.mark.parametrize(
    ("norm", "dimension"), [(ng.LayerNorm(), D * (P + 1)), (ng.BatchNorm(), H), (ng.WeightNorm(), 0)]
)
def test_a_bias_before(norm, dimension):
    function = lambda w, x: ng.normalize(norm, w, x, bias_before=bias)  # noqa: E731
    bias = torch.tensor([0.3, -1.0, 0.5, 0.2]).double()
    found = ng.discover(function)
    assert found.dimension == dimension
    assert found.up_to_eps == ()


def test_a_bias_before_as_a_parameter():
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4, eps=0.0))
    function = lambda params, x: torch.func.functional_call(net, params, (x,))  # noqa: E731
    found = ng.discover(function, parameters=dict(net.named_parameters()))
    assert dimensions(found) == {SHIFTS: 3 * 25, "common shift": 25, "joint scale": 1}
    assert found["joint scale"].action == "0.weight → c 0.weight, 0.bias → c 0.bias"


def test_a_near_miss_leaves_what_it_does_not_break():
    found = ng.discover(lambda w, x: layers.lengths(w, x) + 1e-4 * w[0, 0])
    assert dimensions(found) == {"rotation SO(3)": 3}
    assert found["rotation SO(3)"].action == "W → R W for 2–4"


def test_a_near_miss_is_found_to_have_nothing():
    found = ng.discover(lambda w, x: layers.lengths(w, x) + 1e-4 * w.sum(1).prod())
    assert (found.dimension, len(found)) == (0, 0)


def test_the_same_seed_gives_the_same():
    one, two = (ng.discover(ng.LayerNorm(), generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert one.to_dict() == two.to_dict()


def test_random_states_are_left_alone():
    layer = lambda w, x: torch.dropout(x @ w.T, 0.5, True)  # noqa: E731
    before = torch.get_rng_state()
    found = ng.discover(layer)
    assert found.dimension == 0
    assert torch.equal(torch.get_rng_state(), before)


def test_a_layer_that_computes_in_place():
    assert ng.discover(lambda w, x: layers.plain(w.mul_(2), x.mul_(2))).dimension == 0


def test_data_of_another_shape():
    logits = lambda params, x: layers.attention_logits(params, x[0])  # noqa: E731
    parameters = layers.empty(query=(2, 3), key=(2, 3))
    assert ng.discover(logits, parameters=parameters, data_shape=(1, 6, 3)).dimension == 4
