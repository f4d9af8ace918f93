"""Models of the transformers package, small, with random weights; skipped where it is not installed."""

import copy
import warnings
from collections import Counter

import pytest
import torch

import normgeom as ng
from analyses._transformers_models import SETTINGS, transformers_model

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def transformers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers")


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


def test_a_float32_norm_inside_is_decided_in_float64(transformers):
    found = ng.scan(*transformers_model("LlamaForCausalLM"), select=lambda out: out.logits)
    assert all(one.tolerance < 1e-11 for one in found.joint)
