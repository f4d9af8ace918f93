"""Scale symmetries of transformers' models, derived on paper from their layers, as blocks before | after.

What stands before the bar is multiplied by c, what stands after it divided by c. Written without normgeom.
"""

import re

import numpy as np

GAINS = "{weight,bias}"


def expand(text):
    """`a.{x,y}` as `a.x a.y`; the braces of one word at a time."""
    words = []
    for word in text.split():
        found = re.match(r"(.*)\{(.*)\}(.*)", word)
        inner = found.group(2).split(",") if found else [""]
        words += [f"{found.group(1)}{one}{found.group(3)}" for one in inner] if found else [word]
    return words


def exponents(text):
    before, _, after = text.partition("|")
    return dict.fromkeys(expand(before), 1) | dict.fromkeys(expand(after), -1)


def block(prefix, *lines):
    """Lines in which `~` stands for a prefix."""
    return [line.replace("~", prefix) for line in lines]


def gpt2(layers):
    found, writers = [], ["transformer.{wte,wpe}.weight"]
    for k in range(layers):
        h = f"transformer.h.{k}."
        q, key, v = ("~attn.c_attn.weight[:,_" + span for span in ("0:32]", "32:64]", "64:96]"))
        found += block(
            h,
            "~attn.c_attn.bias[32:64]",  # a key bias: the softmax ignores it
            f"~ln_1.{GAINS} | {q} {key} {v}",
            f"{q} ~attn.c_attn.bias[0:32] | {key}",
            f"{v} ~attn.c_attn.bias[64:96] | ~attn.c_proj.weight",
            f"~ln_2.{GAINS} | ~mlp.c_fc.weight",
        )
        writers += block(h, f"~attn.c_proj.{GAINS}", f"~mlp.c_proj.{GAINS}")
    return [*found, f"{' '.join(writers)} | transformer.ln_f.{GAINS}"]  # the head is tied to wte


def llama(layers, normalized=False):
    found, writers = ["model.norm.weight | lm_head.weight"], ["model.embed_tokens.weight"]
    for k in range(layers):
        layer, attention = f"model.layers.{k}.", "~self_attn.{}_proj.weight"
        q, key, v, o = (attention.format(name) for name in "qkvo")
        queries = [
            q,
            key,
            f"~input_layernorm.weight | {v}",
            "~self_attn.q_norm.weight | ~self_attn.k_norm.weight",
        ]
        plain = [f"{q} | {key}", f"~input_layernorm.weight | {q} {key} {v}"]
        found += block(
            layer,
            *(queries if normalized else plain),
            f"{v} | {o}",
            "~post_attention_layernorm.weight | ~mlp.{gate,up}_proj.weight",
            "~mlp.up_proj.weight | ~mlp.down_proj.weight",  # the gate multiplies what up puts out
        )
        writers += block(layer, o, "~mlp.down_proj.weight")
    return [*found, " ".join(writers)]


def bert(layers):
    found, before = [], "bert.embeddings.LayerNorm"
    for k in range(layers):
        found += block(
            f"bert.encoder.layer.{k}.",
            "~attention.self.key.bias",
            "~attention.self.query.{weight,bias} | ~attention.self.key.weight",
            "~attention.self.value.{weight,bias} | ~attention.output.dense.weight",
            # Post-LN: what a norm puts out is read by a layer and added to what that layer writes.
            f"{before}.{GAINS} ~attention.self.value.bias ~attention.output.dense.bias"
            " | ~attention.self.{query,key}.weight",
            f"~attention.output.LayerNorm.{GAINS} ~output.dense.{GAINS} | ~intermediate.dense.weight",
        )
        before = f"bert.encoder.layer.{k}.output.LayerNorm"
    words = "bert.embeddings.{word,position,token_type}_embeddings.weight"
    last = f"cls.predictions.transform.LayerNorm.{GAINS}"
    return [*found, f"{before}.{GAINS} | cls.predictions.transform.dense.weight", f"{words} | {last}"]


def vit(layers):
    found = [f"vit.layernorm.{GAINS} | classifier.weight"]
    writers = ["vit.embeddings.{cls_token,position_embeddings}"]
    writers += ["vit.embeddings.patch_embeddings.projection.{weight,bias}"]
    for k in range(layers):
        layer = f"vit.layers.{k}."
        found += block(
            layer,
            "~attention.k_proj.bias",
            f"~layernorm_before.{GAINS} | ~attention.{{q,k,v}}_proj.weight",
            "~attention.q_proj.{weight,bias} | ~attention.k_proj.weight",
            "~attention.v_proj.{weight,bias} | ~attention.o_proj.weight",
            f"~layernorm_after.{GAINS} | ~mlp.fc1.weight",
        )
        writers += block(layer, f"~attention.o_proj.{GAINS}", f"~mlp.fc2.{GAINS}")
    return [*found, " ".join(writers)]


def attention(at, norm):
    return [
        f"{norm}.weight | {at}.{{q,k,v}}.weight",
        f"{at}.q.weight | {at}.k.weight",
        f"{at}.v.weight | {at}.o.weight",
    ]


def feedforward(at):
    dense = f"{at}.DenseReluDense"
    return [f"{at}.layer_norm.weight | {dense}.wi.weight", f"{dense}.wi.weight | {dense}.wo.weight"]


def t5(layers):
    found, writers, memory = [], ["shared.weight"], []
    for k in range(layers):
        one, other = (f"{side}.block.{k}.layer." for side in ("encoder", "decoder"))
        found += attention(f"{one}0.SelfAttention", f"{one}0.layer_norm") + feedforward(f"{one}1")
        found += attention(f"{other}0.SelfAttention", f"{other}0.layer_norm") + feedforward(f"{other}2")
        cross = f"{other}1.EncDecAttention"
        found += attention(cross, f"{other}1.layer_norm")[1:]
        found += [f"{other}1.layer_norm.weight | {cross}.q.weight"]
        memory += [f"{cross}.{{k,v}}.weight"]
        writers += [f"{one}0.SelfAttention.o.weight", f"{one}1.DenseReluDense.wo.weight"]
        writers += [
            f"{other}0.SelfAttention.o.weight",
            f"{cross}.o.weight",
            f"{other}2.DenseReluDense.wo.weight",
        ]
    found += [f"encoder.final_layer_norm.weight | {' '.join(memory)}"]
    return [*found, f"{' '.join(writers)} | decoder.final_layer_norm.weight"]


def resnet(stages):
    """Bottleneck blocks with batch norm in training, one a stage."""
    at = "resnet.embedder.embedder."
    found = [f"{at}convolution.weight", f"{at}normalization.{GAINS}"]
    for k in range(stages):
        at = f"resnet.encoder.stages.{k}.layers.0."
        places = [f"{at}shortcut.", *(f"{at}layer.{j}." for j in range(3))]
        found += [f"{place}convolution.weight" for place in places]
        found += [f"{place}normalization.{GAINS}" for place in places[1:3]]
        added = " ".join(f"{place}normalization.{GAINS}" for place in (places[0], places[3]))
        found += [added if k < stages - 1 else f"{added} | classifier.1.weight"]
    return found


def convnext(stages):
    """Blocks with a depthwise convolution, a norm, two layers and a gain on the branch, one a stage."""
    found = [
        f"convnext.embeddings.patch_embeddings.{GAINS}",
        f"convnext.layernorm.{GAINS} | classifier.weight",
    ]
    for k in range(stages):
        at, down = (
            f"convnext.encoder.stages.{k}.layers.0.",
            f"convnext.encoder.stages.{k}.downsampling_layer.",
        )
        writes = f"{down}1.{GAINS}" if k else f"convnext.embeddings.layernorm.{GAINS}"
        found += [f"{down}0.{GAINS} | {down}1.weight"] if k else []
        found += block(
            at,
            f"{writes} ~layer_scale_parameter | ~dwconv.weight",
            "~pwconv2.{weight,bias} | ~layer_scale_parameter",
            "~dwconv.{weight,bias}",
            f"~layernorm.{GAINS} | ~pwconv1.weight",
        )
    return found


def rows(texts, names):
    """The exponents as a matrix, a column a block; unknown names raise."""
    places = {name.replace(" ", "_"): k for k, name in enumerate(names)}
    matrix = np.zeros((len(texts), len(names)))
    for row, text in zip(matrix, texts, strict=True):
        for name, power in exponents(text).items():
            row[places[name]] = power
    return matrix
