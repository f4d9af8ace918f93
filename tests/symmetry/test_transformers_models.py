"""Models of the transformers package, small, with random weights, against symmetries derived on paper.

Skipped where the package is not installed (`pip install normgeom[models]`).
"""

import copy
import warnings
from collections import Counter

import numpy as np
import pytest
import torch

import normgeom as ng
from analyses._transformers_models import SETTINGS, transformers_model
from tests.symmetry import derived
from tests.symmetry.scan_oracles import exponent_matrix

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def transformers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers", reason="the extra `models` is not installed")


WANTED = {
    # nullity, dead blocks, rules of the joint symmetries of one layer with what is around it
    "GPT2LMHeadModel": (6, 1, {"Q/K pair": 1, "V/O pair": 1}),
    "LlamaForCausalLM": (7, 0, {"Q/K pair": 1, "V/O pair": 1, "gated pair": 1}),
    "Qwen3ForCausalLM": (9, 0, {"Q/K pair": 1, "V/O pair": 1, "gated pair": 1}),
    "BertForMaskedLM": (7, 1, {"Q/K pair": 1, "V/O pair": 1}),
    "T5ForConditionalGeneration": (15, 0, {"Q/K pair": 3, "V/O pair": 3, "relu pair": 2}),
    "ViTForImageClassification": (7, 1, {"Q/K pair": 1, "V/O pair": 1}),
    "ResNetForImageClassification": (16, 0, {}),
    "ConvNextForImageClassification": (11, 0, {"layer/gain pair": 2}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_model_is_scanned_and_left_as_found(transformers, name):
    model, batch = transformers_model(name)
    saved = copy.deepcopy(model.state_dict())
    found = ng.scan(model, batch, select=lambda out: out.logits)
    nullity, dead, rules = WANTED[name]
    assert (found.nullity, len(found.dead)) == (nullity, dead)
    assert rules.items() <= Counter(one.rule for one in found.joint).items()
    assert (found.findings, found.dtype) == ((), "float64")
    torch.testing.assert_close(model.state_dict(), saved, rtol=0, atol=0)


DEEPER = {"n_layer": 2, "num_hidden_layers": 2, "num_layers": 2}
DERIVED = {
    "GPT2LMHeadModel": derived.gpt2(2),
    "LlamaForCausalLM": derived.llama(2),
    "Qwen3ForCausalLM": derived.llama(2, normalized=True),
    "BertForMaskedLM": derived.bert(2),
    "T5ForConditionalGeneration": derived.t5(2),
    "ViTForImageClassification": derived.vit(2),
    "ResNetForImageClassification": derived.resnet(2),
    "ConvNextForImageClassification": derived.convnext(2),
}


@pytest.fixture(scope="module")
def maps(transformers):
    """The map of every model with two layers or stages."""
    more = {name: {k: v for k, v in DEEPER.items() if k in own} for name, own in SETTINGS.items()}
    pairs = {name: transformers_model(name, **more[name]) for name in SETTINGS}
    return {name: ng.scan(*pair, select=lambda out: out.logits) for name, pair in pairs.items()}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_symmetries_are_those_derived_on_paper(maps, name):
    found, texts = exponent_matrix(maps[name]), DERIVED[name]
    wanted = derived.rows(texts, [one.block for one in maps[name].blocks])
    assert len(found) == len(texts) == np.linalg.matrix_rank(wanted)
    assert np.linalg.matrix_rank(np.vstack([found, wanted])) == len(texts)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_joint_symmetry_is_in_the_words_of_the_derivation(maps, name):
    wanted = {frozenset(derived.exponents(text).items()) for text in DERIVED[name]}
    wanted |= {frozenset((block, -power) for block, power in one) for one in wanted}
    found = [
        frozenset((k.replace(" ", "_"), x) for k, x in one.exponents.items()) for one in maps[name].joint
    ]
    assert set(found) <= wanted


ABSORBED = {
    # what is added to the input of layers, and the biases that take it away, in every layer
    "GPT2LMHeadModel": ["ln_1.bias", "c_attn.bias[64:96]", "ln_2.bias"],
    "BertForMaskedLM": ["LayerNorm.bias", "self.value.bias", "output.LayerNorm.bias"],
    "ViTForImageClassification": ["layernorm_before.bias", "v_proj.bias", "layernorm_after.bias"],
    "ConvNextForImageClassification": ["layernorm.bias", "downsampling_layer.0.bias"],
}


@pytest.mark.parametrize("name", SETTINGS)
def test_shifts_that_a_bias_takes_away(maps, name):
    shifts = maps[name].absorbed_shifts
    counts = {"GPT2LMHeadModel": 6, "BertForMaskedLM": 7, "ViTForImageClassification": 7}
    assert len(shifts) == {**counts, "ConvNextForImageClassification": 4}.get(name, 0)
    own = [next(b for b, power in one.exponents.items() if b not in one.through) for one in shifts]
    ends = ABSORBED.get(name, [])
    assert all(any(block.endswith(end) for end in [*ends, "layernorm.bias"]) for block in own)
    assert all(any(block.endswith(end) for block in own) for end in ends)


def test_shared_heads_and_rotary_embeddings(maps):
    by = {one.rule: one.by for one in maps["LlamaForCausalLM"].joint}
    assert (by["Q/K pair"], by["V/O pair"], by["gated pair"]) == ("head", "unit", "unit")
    keys = maps["Qwen3ForCausalLM"]["model.layers.1.self_attn.k_proj.weight"].parts
    assert [(part.kind, part.move, part.free) for part in keys] == [("head", ng.Move.SCALE, (0, 1))]


def test_what_is_free_as_a_whole_goes_along_unit_by_unit(maps):
    one = next(
        x for x in maps["Qwen3ForCausalLM"].joint if "model.layers.1.input_layernorm.weight" in x.exponents
    )
    attention = "model.layers.1.self_attn."
    assert (one.by, set(one.companions)) == (
        "unit",
        {f"{attention}q_proj.weight", f"{attention}k_proj.weight"},
    )
    gains = [x for x in maps["ResNetForImageClassification"].joint if x.rule == "gain before a norm"]
    assert [(x.by, set(x.companions.values())) for x in gains] == [("unit", {-1})] * 5


@pytest.mark.parametrize("name", SETTINGS)
def test_a_scan_costs_at_most_four_passes_a_block_and_a_few(maps, name):
    found = maps[name]
    assert found.forwards + 2 * found.backwards <= 4 * len(found.blocks) + 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "ViTForImageClassification"])
def test_models_of_narrow_types(transformers, name, dtype):
    model, batch = transformers_model(name)
    batch = {k: v.to(dtype) if v.is_floating_point() else v for k, v in batch.items()}
    found = ng.scan(model.to(dtype), batch, select=lambda out: out.logits)
    assert (found.nullity, found.dtype, found.findings) == (WANTED[name][0], "float64", ())


def test_a_scan_is_determined_by_its_seed(transformers, maps):
    found = maps["BertForMaskedLM"]
    pair = transformers_model("BertForMaskedLM", num_hidden_layers=2)
    again = ng.scan(*pair, select=lambda out: out.logits)
    other = ng.scan(*pair, select=lambda out: out.logits, generator=torch.Generator().manual_seed(5))
    assert again.to_json() == found.to_json() != other.to_json()
    assert [one.label for one in other.together] == [one.label for one in found.together]


def test_dropout_in_training_keeps_its_mask(transformers):
    model, batch = transformers_model("GPT2LMHeadModel")
    found = ng.scan(model.train(), batch, select=lambda out: out.logits)
    # Dropout of attention weights: they no longer sum to 1, so that a value's bias is not passed unchanged.
    assert (found.mode, found.nullity, len(found.absorbed_shifts)) == ("train", 6, 2)


def test_a_float32_norm_inside_is_decided_in_float64(transformers):
    found = ng.scan(*transformers_model("LlamaForCausalLM"), select=lambda out: out.logits)
    assert all(one.tolerance < 1e-11 for one in found.joint)
