"""Which symmetry it is, in the words of the field: from signs, modules and names, which decide nothing."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from torch import nn

from normgeom.symmetry.partitions import Move
from normgeom.symmetry.records import BlockSymmetry

_QUERY = re.compile(r"(^|_)(q|query|wq|q_proj|q_lin|q_norm|query_key)(_|$)")
_KEY = re.compile(r"(^|_)(k|key|wk|k_proj|k_lin|k_norm)(_|$)")
_VALUE = re.compile(r"(^|_)(v|value|wv|v_proj|v_lin)(_|$)")
_EMBEDDING = re.compile(r"embed|(^|_)(cls_token|pos|wte|wpe)(_|$)")
_STREAM = "residual stream: embeddings with all residual writers"
_STACKED = ("in_proj", "c_attn", "qkv")


class Reading(NamedTuple):
    """A rule in a few words, and the sentence."""

    rule: str
    why: str


def explain_single(model: nn.Module, one: BlockSymmetry, norms: Mapping[str, bool]) -> str:
    """Return why a block can be scaled by itself."""
    if one.dead:
        return _why_dead(model, one)
    kinds = [p.kind for p in one.parts if p.move is Move.SCALE and len(p.free) + len(p.unused) == p.count]
    each = f", each {kinds[0]} by itself" if kinds else ""
    if norms.get(one.module):
        return f"scale invariant{each}: a later norm divides the length of this gain out"
    return f"scale invariant{each}: {_divisor(model, one.parameter)} divides its length out"


def _divisor(model: nn.Module, parameter: str) -> str:
    """What divides the length of a weight out: a re-parametrization that its name tells of, or a norm."""
    if ".parametrizations." in f".{parameter}":
        kind = type(model.get_submodule(parameter.rpartition(".")[0])[0]).__name__  # type: ignore[index]
        return {"_WeightNorm": "weight norm", "_SpectralNorm": "spectral norm"}.get(kind, kind)
    endings = {"weight_v": "weight norm", "weight_orig": "spectral norm"}
    return endings.get(parameter.rpartition(".")[2], "a norm")


def _why_dead(model: nn.Module, one: BlockSymmetry) -> str:
    """Why the outputs do not depend on a block, as far as names and modules tell."""
    dead = "dead parameter: the outputs do not depend on it"
    if len(one.shape) != 1:
        return dead
    if _role_of(one.block) == "key":
        return f"{dead}; a key bias adds one number to all logits of a query, which the softmax ignores"
    batch = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
    if any(isinstance(module, batch) for module in model.modules()):
        return f"{dead}; a bias that a batch or instance norm reads goes with the mean that it subtracts"
    return dead


def explain_joint(
    model: nn.Module,
    exponents: Mapping[str, int],
    norms: Mapping[str, bool],
    companions: Mapping[str, int] | None = None,
) -> Reading:
    """Return the rule of a joint scale symmetry and a sentence.

    Args:
        model: the model.
        exponents: by the label of a block.
        norms: by the name of a module, whether it holds gains and biases only.
        companions: blocks that are free as a whole and go along unit by unit.
    """
    up = [name for name, power in exponents.items() if power > 0]
    down = [name for name, power in exponents.items() if power < 0]
    if not down or not up:
        return _all_one_way(model, up or down, norms)
    both = f"{_times(exponents, up)}, {_times(exponents, down, over=True)}"
    if {_role(up), _role(down)} == {"query", "key"}:
        return Reading("Q/K pair", f"the scores are products of queries and keys: {both}")
    if single := [name for side in (up, down) for name in side if _is_scalar(model, side)]:
        return Reading("scalar factor", f"{_and(single)} multiplies what the other puts out: {both}")
    gains = [side for side in (up, down) if all(norms.get(_owner(name)) for name in side)]
    if len(gains) == 1 and any(_is_embedding(model, name) for name in exponents):
        return _tied_stream(model, down if gains[0] is up else up, both)
    if len(gains) == 1:
        return _gain_pair(gains[0], down if gains[0] is up else up, both, list(companions or {}))
    if _is_gated(model, up) or _is_gated(model, down):
        return Reading("gated pair", f"a gate multiplies what the first puts out, linearly: {both}")
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


def _gain_pair(gain: Sequence[str], weights: Sequence[str], both: str, free: Sequence[str]) -> Reading:
    """Gains and biases of one module against the weights that read it, or against the layer before them."""
    if any(_is_bias(name, weights) for name in weights):
        return Reading("layer/gain pair", f"the output of {_and(weights)} is multiplied by {_and(gain)}")
    owners = _owners(gain)
    if len(owners) > 1:
        return _stream(both)
    others = f"and by {_and(free)}, whose length a norm divides out" if free else "alone"
    reads = f"the output of {owners[0] or _and(gain)} is read by {_and(weights)} {others}"
    return Reading("gain/next weight pair", reads)


def _stream(both: str) -> Reading:
    why = f"{both}: what is added to the stream, against what reads it"
    return Reading("residual stream with its readers", why)


def explain_units(by: str, companions: Mapping[str, int]) -> str:
    """Return the end of a sentence: what can have a factor of its own, and what goes along with it."""
    if by == "whole":
        return ""
    along = f", together with {_and(list(companions))}, free as a whole" if companions else ""
    return f"; every {by} can have a factor of its own{along}"


def explain_shift(exponents: Mapping[str, int], through: Mapping[str, str]) -> Reading:
    """Return the rule of a joint shift and a sentence; `through` has the weights that carry it to a bias."""
    if through:
        return _absorbed(exponents, through)
    gain = [name for name, power in exponents.items() if power > 0]
    loss = [name for name, power in exponents.items() if power < 0]
    if gain and loss:
        return Reading(
            "added tensors", f"{_and(gain)} and {_and(loss)} are added: what one gains the other loses"
        )
    return Reading("joint shift", f"{_and(gain or loss)} can be shifted together")


def _absorbed(exponents: Mapping[str, int], through: Mapping[str, str]) -> Reading:
    adds = [name for name, power in exponents.items() if power > 0 and name not in through]
    beside = [name for name in exponents if name not in through and name not in adds]
    takes = f"its reader's bias takes away, b -> b - W γ: {_and(list(through))}"
    along = f"; so does what is added beside it: {_and(beside)}" if beside else ""
    value = adds and _role(adds) == "value"
    passes = "; the weights of an attention sum to 1, so that it passes them unchanged" if value else ""
    return Reading("shift absorbed by a bias", f"what {_and(adds)} adds, {takes}{along}{passes}")


def _all_one_way(model: nn.Module, names: Sequence[str], norms: Mapping[str, bool]) -> Reading:
    embeds = any(_is_embedding(model, name) for name in names)
    owners = _owners(names)
    several = len(_places(names)) > 1 or any(norms.get(owner) and owner for owner in owners)
    if len(owners) > 1 and (embeds or several):
        rule = _STREAM if embeds else "residual stream: all writers"
        return Reading(
            rule, f"all that is added to the residual stream, which only norms read: {_and(names)}"
        )
    if all(norms.get(owner) for owner in owners):
        why = f"what reads {_and(owners)} has a norm after it, which divides the length of gain and bias out"
        return Reading("gain before a norm", why)
    why = f"{_and(names)} are scaled together: the norm that follows divides their common length out"
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
    words = name.partition("[")[0].split(".")
    by_name = any(_EMBEDDING.search(word) for word in words) and "norm" not in words[-2:][0].lower()
    return by_name or isinstance(_module(model, name), (nn.Embedding, nn.EmbeddingBag))


def _is_scalar(model: nn.Module, names: Sequence[str]) -> bool:
    """Whether one side is a single number."""
    return len(names) == 1 and model.get_parameter(names[0].partition("[")[0]).numel() == 1


def _times(exponents: Mapping[str, int], names: Sequence[str], over: bool = False) -> str:
    """For example `a and b times c`, `d over c^2`."""
    powers = {abs(exponents[name]) for name in names}
    word = "over" if over else "times"
    if len(powers) == 1:
        power = powers.pop()
        return f"{_and(names)} {word} c{f'^{power}' * (power > 1)}"
    return _and([f"{name} {word} c^{abs(exponents[name])}" for name in names])


def _is_gated(model: nn.Module, names: Sequence[str]) -> bool:
    """Whether a module beside the one that these blocks belong to is called a gate."""
    owners = _owners(names)
    if len(owners) != 1 or not owners[0]:
        return False
    beside = model.get_submodule(owners[0].rpartition(".")[0])
    own = owners[0].rpartition(".")[2]
    return any("gate" in name and name != own for name, _ in beside.named_children())


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
