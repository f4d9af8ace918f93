"""Layers that repeat, told as one: `h.0.mlp.weight` and `h.1.mlp.weight` as `h.0–1.mlp.weight`."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Exponents = Mapping[str, int]
Layers = dict[int, dict[str, str]]
"""The blocks of numbered layers: by the number, by what stands after it in the name."""


@dataclass(frozen=True)
class FoldedJoint:
    """A joint symmetry, or the same one in every layer of a fold.

    Attributes:
        exponents: by the folded names.
        place: of the first one in the list that was folded.
        count: how many there are.
    """

    exponents: Exponents
    place: int
    count: int


@dataclass(frozen=True)
class Folding:
    """Which blocks stand for those of other layers.

    Attributes:
        names: the folded name of every block that is shown, by its own name.
        members: the blocks that each of them stands for, itself first.
        joint: the joint symmetries that are shown.
    """

    names: Mapping[str, str]
    members: Mapping[str, Sequence[str]]
    joint: Sequence[FoldedJoint]


def fold(looks: Mapping[str, Hashable], joint: Sequence[Exponents]) -> Folding:
    """Return a folding of blocks: layers with numbers in a row, the same looks and the same symmetries.

    A joint symmetry must lie within one layer, with the same in every other, or have the same exponents in
    all of them; else the layers stay apart.

    Args:
        looks: what must be equal for two blocks to be told as one, by block, in order.
        joint: the exponents of every joint symmetry.

    >>> found = fold({"h.0.a": 1, "h.1.a": 1, "end": 2}, [{"h.0.a": 1, "h.1.a": 1, "end": -1}])
    >>> list(found.names.values()), found.joint[0].exponents
    (['h.0–1.a', 'end'], {'h.0–1.a': 1, 'end': -1})
    """
    stands = {name: name for name in looks}
    names = {name: name for name in looks}
    for before, layers in _runs(looks):
        own = [name for layer in layers.values() for name in layer.values()]
        is_fresh = all(stands[name] == name == names[name] for name in own)
        if is_fresh and _fit(layers, joint):
            first, last = min(layers), max(layers)
            stands |= {name: layers[first][end] for layer in layers.values() for end, name in layer.items()}
            names |= {name: f"{before}{first}–{last}.{end}" for end, name in layers[first].items()}
    shown = [name for name in looks if stands[name] == name]
    members = {name: [other for other in looks if stands[other] == name] for name in shown}
    found: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for place, one in enumerate(joint):
        renamed = {names[stands[name]]: power for name, power in one.items()}
        found.setdefault(tuple(renamed.items()), []).append(place)
    folded = [FoldedJoint(dict(key), places[0], len(places)) for key, places in found.items()]
    return Folding({name: names[name] for name in shown}, members, folded)


def _runs(looks: Mapping[str, Hashable]) -> Iterator[tuple[str, Layers]]:
    """Yield layers with numbers in a row that have the same blocks, outer ones first; and what names them."""
    groups: dict[tuple[int, str], Layers] = {}
    for name in looks:
        words = name.split(".")
        for place, word in enumerate(words[:-1]):
            if word.isdigit():
                before = "".join(f"{one}." for one in words[:place])
                layer = groups.setdefault((place, before), {}).setdefault(int(word), {})
                layer[".".join(words[place + 1 :])] = name
    for (_, before), layers in sorted(groups.items(), key=lambda item: item[0]):
        run: Layers = {}
        for number in sorted(layers):
            if run and not (number - 1 in run and _alike(run[number - 1], layers[number], looks)):
                yield from [(before, run)] if len(run) > 1 else []
                run = {}
            run[number] = layers[number]
        yield from [(before, run)] if len(run) > 1 else []


def _alike(one: Mapping[str, str], other: Mapping[str, str], looks: Mapping[str, Hashable]) -> bool:
    """Whether two layers have the same blocks, which look the same."""
    return list(one) == list(other) and all(looks[one[end]] == looks[other[end]] for end in one)


def _fit(layers: Layers, joint: Sequence[Exponents]) -> bool:
    """Whether every joint symmetry is the same in all layers, or one of as many."""
    owner = {name: (number, end) for number, layer in layers.items() for end, name in layer.items()}
    within: dict[int, list[list[tuple[str, int]]]] = {number: [] for number in layers}
    for one in joint:
        parts: dict[int, dict[str, int]] = {}
        for name, power in one.items():
            if name in owner:
                number, end = owner[name]
                parts.setdefault(number, {})[end] = power
        if len(parts) == 1:
            ((number, own),) = parts.items()
            outside = {name: power for name, power in one.items() if name not in owner}
            within[number].append(sorted([*own.items(), *outside.items()]))
        elif parts and (parts.keys() != layers.keys() or len({tuple(p.items()) for p in parts.values()}) > 1):
            return False
    each = [sorted(found) for found in within.values()]
    return all(found == each[0] for found in each)
