"""Models of the transformers package, small, with random weights; skipped where it is not installed."""

import copy
import warnings
from collections import Counter

import pytest
import torch

import normgeom as ng

pytestmark = pytest.mark.filterwarnings("ignore")
TOKENS = torch.randint(3, 50, (2, 7), generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
WIDTHS = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
VOCABULARY = {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GROUPED = {**WIDTHS, **VOCABULARY, "num_key_value_heads": 2, "max_position_embeddings": 32}


@pytest.fixture(scope="module")
def transformers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers")


SETTINGS = {
    "GPT2LMHeadModel": {"n_layer": 1, "n_embd": 32, "n_head": 4, "n_positions": 16, **VOCABULARY},
    "LlamaForCausalLM": GROUPED,
    "Qwen3ForCausalLM": {**GROUPED, "head_dim": 8},
    "BertForMaskedLM": {**WIDTHS, "vocab_size": 50, "max_position_embeddings": 16, "pad_token_id": 0},
    "T5ForConditionalGeneration": {
        "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4, "decoder_start_token_id": 0,
        **VOCABULARY,
    },
    "ViTForImageClassification": {**WIDTHS, "image_size": 32, "patch_size": 8, "num_labels": 5},
    "ResNetForImageClassification": {
        "embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1], "num_labels": 5,
    },
    "ConvNextForImageClassification": {
        "hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4, "num_labels": 5,
    },
}  # fmt: skip


def made(transformers, name):
    """The model in the mode in which its norms have their invariances, and its batch."""
    config = getattr(transformers, name.split("For")[0].removesuffix("LMHeadModel") + "Config")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, name)(config(**SETTINGS[name]))
    if "Image" in name:
        return model.train("ResNet" in name), {"pixel_values": IMAGES}
    batch = {"input_ids": TOKENS}
    return model.eval(), {**batch, "decoder_input_ids": TOKENS} if "T5" in name else batch


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
    model, batch = made(transformers, name)
    saved = copy.deepcopy(model.state_dict())
    found = ng.scan(model, batch, select=lambda out: out.logits)
    nullity, dead, rules = WANTED[name]
    assert (found.nullity, len(found.dead)) == (nullity, dead)
    assert rules.items() <= Counter(one.rule for one in found.joint).items()
    assert (found.findings, found.dtype) == ((), "float64")
    torch.testing.assert_close(model.state_dict(), saved, rtol=0, atol=0)


def test_a_float32_norm_inside_is_decided_in_float64(transformers):
    found = ng.scan(*made(transformers, "LlamaForCausalLM"), select=lambda out: out.logits)
    assert all(one.tolerance < 1e-11 for one in found.joint)
