"""Architectures of the transformers package at small sizes with random weights; nothing is downloaded."""

import importlib
import importlib.util
import warnings
from typing import Any

import torch
from torch import Tensor, nn

MISSING = "transformers is not installed; `pip install -c constraints.txt -e '.[models]'` brings it"

_WIDTHS = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
_VOCABULARY = {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_GROUPED = {**_WIDTHS, **_VOCABULARY, "num_key_value_heads": 2, "max_position_embeddings": 32}

SETTINGS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": {"n_layer": 1, "n_embd": 32, "n_head": 4, "n_positions": 16, **_VOCABULARY},
    "LlamaForCausalLM": _GROUPED,
    "Qwen3ForCausalLM": {**_GROUPED, "head_dim": 8},
    "BertForMaskedLM": {**_WIDTHS, "vocab_size": 50, "max_position_embeddings": 16, "pad_token_id": 0},
    "T5ForConditionalGeneration": {
        "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4, "decoder_start_token_id": 0,
        **_VOCABULARY,
    },
    "ViTForImageClassification": {**_WIDTHS, "image_size": 32, "patch_size": 8, "num_labels": 5},
    "ResNetForImageClassification": {
        "embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1], "num_labels": 5,
    },
    "ConvNextForImageClassification": {
        "hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4, "num_labels": 5,
    },
}  # fmt: skip
"""One layer, or one block a stage, of every architecture."""

NAMES = {
    "GPT2LMHeadModel": "GPT-2",
    "LlamaForCausalLM": "Llama",
    "Qwen3ForCausalLM": "Qwen3",
    "BertForMaskedLM": "BERT",
    "T5ForConditionalGeneration": "T5",
    "ViTForImageClassification": "ViT",
    "ResNetForImageClassification": "ResNet-50",
    "ConvNextForImageClassification": "ConvNeXt",
}


def is_installed() -> bool:
    """Return whether the transformers package can be imported."""
    return importlib.util.find_spec("transformers") is not None


def transformers_model(name: str, **changes: Any) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return a model in the mode in which its norms have their invariances, and its batch.

    Args:
        name: a class of the package, from `SETTINGS`.
        changes: of the settings of its configuration.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = importlib.import_module("transformers")
        config = getattr(package, name.split("For")[0].removesuffix("LMHeadModel") + "Config")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = getattr(package, name)(config(**{**SETTINGS[name], **changes}))
    generator = torch.Generator().manual_seed(0)
    if "Image" in name:
        images = torch.randn(3, 3, 32, 32, generator=generator)
        return model.train("ResNet" in name), {"pixel_values": images}
    ids = torch.randint(3, 50, (2, 7), generator=generator)
    return model.eval(), {"input_ids": ids, **({"decoder_input_ids": ids} if "T5" in name else {})}
