"""Which symmetry it is, in the words of the field: from signs, modules and names, which decide nothing."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from torch import nn

_QUERY = re.compile(r"(^|_)(q|query|wq|q_proj|q_lin|q_norm|query_key)(_|$)")
_KEY = re.compile(r"(^|_)(k|key|wk|k_proj|k_lin|k_norm)(_|$)")
_VALUE = re.compile(r"(^|_)(v|value|wv|v_proj|v_lin)(_|$)")
_STREAM = "residual stream: embeddings with all residual writers"
_STACKED = ("in_proj", "c_attn", "qkv")


class Reading(NamedTuple):
    """A rule in a few words, and the sentence."""

    rule: str
    why: str


def explain_single(model: nn.Module, parameter: str, dead: bool, norms: Mapping[str, bool]) -> str:
    """Return why a block can be scaled by itself."""
    if dead:
        return "dead parameter: the outputs do not depend on it"
    owner = parameter.rpartition(".")[0]
    if norms.get(owner):
        return "scale invariant: a later norm divides the length of this gain out"
    return "scale invariant: a norm divides its length out"


def explain_joint(model: nn.Module, exponents: Mapping[str, int], norms: Mapping[str, bool]) -> Reading:
    """Return the rule of a joint scale symmetry and a sentence.

    Args:
        model: the model.
        exponents: by the label of a block.
        norms: by the name of a module, whether it holds gains and biases only.
    """
    up = [name for name, power in exponents.items() if power > 0]
    down = [name for name, power in exponents.items() if power < 0]
    if not down or not up:
        return _all_one_way(model, up or down, norms)
    both = f"{_and(up)} times c, {_and(down)} over c"
    if {_role(up), _role(down)} == {"query", "key"}:
        return Reading("Q/K pair", f"the scores are products of queries and keys: {both}")
    gains = [side for side in (up, down) if all(norms.get(_owner(name)) for name in side)]
    if len(gains) == 1 and any(_is_embedding(model, name) for name in exponents):
        return _tied_stream(model, down if gains[0] is up else up, both)
    if len(gains) == 1:
        return _gain_pair(gains[0], down if gains[0] is up else up, both)
    if "value" in (_role(up), _role(down)):
        return Reading("V/O pair", f"the attention output is linear in the values: {both}")
    if any(norms.get(_owner(name)) or _is_embedding(model, name) for name in exponents):
        return _stream(both)
    return Reading(
        "relu pair",
        f"consecutive layers, {both}: what lies between them is positively homogeneous (relu, leaky relu, "
        "abs, a gate or nothing)",
    )


def _tied_stream(model: nn.Module, writers: Sequence[str], both: str) -> Reading:
    """Embeddings, and what is added to them, against the last gain: they are read by the head as well."""
    if all(_is_embedding(model, name) for name in writers):
        return Reading("embeddings/last gain pair", f"the embeddings are the head's weights as well: {both}")
    return Reading(_STREAM, f"all that is added to the residual stream, and what reads it last: {both}")


def _gain_pair(gain: Sequence[str], weights: Sequence[str], both: str) -> Reading:
    """Gains and biases of one module against the weights that read it, or against the layer before them."""
    if any(_is_bias(name, weights) for name in weights):
        return Reading("layer/gain pair", f"the output of {_and(weights)} is multiplied by {_and(gain)}")
    owners = _owners(gain)
    if len(owners) > 1:
        return _stream(both)
    reads = f"the output of {owners[0] or _and(gain)} is read by {_and(weights)} alone"
    return Reading("gain/next weight pair", reads)


def _stream(both: str) -> Reading:
    why = f"{both}: what is added to the stream, against what reads it"
    return Reading("residual stream with its readers", why)


def explain_shift(exponents: Mapping[str, int]) -> Reading:
    """Return the rule of a joint shift and a sentence."""
    gain = [name for name, power in exponents.items() if power > 0]
    loss = [name for name, power in exponents.items() if power < 0]
    if gain and loss:
        return Reading(
            "added tensors", f"{_and(gain)} and {_and(loss)} are added: what one gains the other loses"
        )
    return Reading("joint shift", f"{_and(gain or loss)} can be shifted together")


def _all_one_way(model: nn.Module, names: Sequence[str], norms: Mapping[str, bool]) -> Reading:
    embeds = any(_is_embedding(model, name) for name in names)
    owners = _owners(names)
    several = len(_places(names)) > 1 or any(norms.get(owner) and owner for owner in owners)
    if embeds or (several and len(owners) > 1):
        rule = _STREAM if embeds else "residual stream: all writers"
        return Reading(
            rule, f"all that is added to the residual stream, which only norms read: {_and(names)}"
        )
    why = f"{_and(names)} are added before one norm, which divides their common length out"
    return Reading("one norm", why)


def _owners(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(map(_owner, names)))


def _places(names: Sequence[str]) -> set[str]:
    """The numbered modules, blocks of a stack, that hold these blocks."""
    found = set()
    for words in (name.split(".") for name in names):
        found |= {".".join(words[: k + 1]) for k, word in enumerate(words[:-1]) if word.isdigit()}
    return found


def _is_bias(name: str, names: Sequence[str]) -> bool:
    """Whether a block is the bias of a layer whose weight is among the names."""
    return name.endswith("bias") and f"{_owner(name)}.weight" in names


def _is_embedding(model: nn.Module, name: str) -> bool:
    return isinstance(_module(model, name), (nn.Embedding, nn.EmbeddingBag))


def _role(names: Sequence[str]) -> str:
    """`query`, `key` or `value` if all names say so, by name or by place in a stacked tensor."""
    roles = {_role_of(name) for name in names}
    return roles.pop() if len(roles) == 1 else ""


def _role_of(label: str) -> str:
    name, _, index = label.partition("[")
    words = name.split(".")
    if index and any(word.startswith(_STACKED) for word in words):
        start = int(re.findall(r"(\d+):", index)[0])
        stop = int(re.findall(r":(\d+)", index)[-1])
        return ("query", "key", "value")[min(2, start // max(stop - start, 1))]
    for word in reversed(words):
        for role, pattern in (("query", _QUERY), ("key", _KEY), ("value", _VALUE)):
            if pattern.search(word):
                return role
    return ""


def _owner(label: str) -> str:
    return label.partition("[")[0].rpartition(".")[0]


def _module(model: nn.Module, label: str) -> nn.Module:
    return model.get_submodule(_owner(label).partition(".parametrizations")[0])


def _and(names: Sequence[str]) -> str:
    shown = list(names) if len(names) <= 6 else [*names[:3], f"{len(names) - 4} more", names[-1]]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
