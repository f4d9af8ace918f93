"""Which blocks of a model can be rescaled without a change of its outputs, found by rescaling them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from normgeom.symmetry.blocks import Block, BlockView, resolve_blocks
from normgeom.symmetry.probe import Probe, deviation

_FACTORS = (2.5, 0.4)
_SAFETY = 100.0
_GRADIENT_SAFETY = 1e4


class ScaleKind(StrEnum):
    """What of a block can be rescaled: each of its rows, the block as a whole, nothing; or it is unused."""

    ROW = "row"
    WHOLE = "whole"
    NONE = "none"
    UNUSED = "unused"


@dataclass(frozen=True)
class ScaleInvariance:
    """What rescaling one block does to the outputs.

    Attributes:
        block: its label.
        kind: `row` if every row can be rescaled by itself, `whole` if only the block can, `none`, or
            `unused` if the outputs do not depend on it.
        deviation: the change of the outputs at `w -> 2.5 w` and `0.4 w` with every eps taken away, relative
            to the largest output. Parts of one block are tested together: the largest of them.
        tolerance: the rounding that it is judged against.
        breaking: the change with the model's own eps.
        cosine: of the block and the gradient of a random combination of the outputs, 0 for an invariant one.
        confirmed: whether the gradient says the same as the rescaling.
    """

    block: str
    kind: ScaleKind
    deviation: float
    tolerance: float
    breaking: float
    cosine: float
    confirmed: bool

    @property
    def holds(self) -> bool:
        """Whether the block as a whole can be rescaled and matters."""
        return self.kind in (ScaleKind.ROW, ScaleKind.WHOLE)


@dataclass(frozen=True)
class ScaleInvariances:
    """The blocks of a model with what rescaling does to each; `found["name"]` is one of them."""

    blocks: tuple[ScaleInvariance, ...]
    mode: str

    def __getitem__(self, label: str) -> ScaleInvariance:
        """Return what was found of one block."""
        for one in self.blocks:
            if one.block == label:
                return one
        raise KeyError(f"no block {label!r}; there are {', '.join(one.block for one in self.blocks)}")

    def __iter__(self) -> Iterator[ScaleInvariance]:
        """Iterate over the blocks."""
        return iter(self.blocks)

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.blocks)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for every block."""
        return pd.DataFrame([{**vars(one), "kind": str(one.kind)} for one in self.blocks])

    def __repr__(self) -> str:
        """Return the table."""
        return f"{self.to_frame().to_string(index=False, float_format='{:.1e}'.format)}\nmode: {self.mode}"


def scale_invariance(
    model: nn.Module,
    batch: Any,
    *,
    blocks: Sequence[Block | str] | None = None,
    select: Callable[[Any], Any] | None = None,
    generator: torch.Generator | None = None,
) -> ScaleInvariances:
    """Return which blocks can be rescaled without a change of the outputs: `f(delta w) = f(w)`, `delta > 0`.

    Decided by rescaling the block on a copy in float64, and confirmed by the identity `<w, grad> = 0` that
    follows (van Laarhoven 2017; for layer norm, Ba et al. 2016, section 5.1). Every eps that is an attribute
    of a module is taken away for the decision; what it breaks is measured. A parameter that is zero is
    replaced by random numbers first. The model is left as found.

    Args:
        model: any module; its mode is kept, so batch norm in evaluation has no invariance.
        batch: what the model takes: a tensor, a tuple of arguments, or a dict of named arguments.
        blocks: which (default: every trainable tensor).
        select: picks the outputs from what the model returns; default all floating-point tensors.
        generator: of the random numbers used; default one with a fixed seed.

    Raises:
        ValueError: if a block does not exist, or the model cannot be copied or returns no tensor.

    Source: Ba et al. 2016, Table 1 (weight matrix and weight vector re-scaling), for a whole model.

    >>> net = nn.Sequential(nn.Linear(4, 6, bias=False), nn.LayerNorm(6), nn.Linear(6, 2))
    >>> found = scale_invariance(net, torch.randn(8, 4))
    >>> [str(one.kind) for one in found]
    ['whole', 'none', 'none', 'none', 'none']
    """
    views = resolve_blocks(model, blocks)
    generator = generator or torch.Generator().manual_seed(0)
    probe = Probe(model, batch, select=select, generator=generator)
    _fill_zero_parts(probe, views)
    decided = _decide(probe, views)
    return ScaleInvariances(tuple(one for part in decided for one in part), _mode(model))


def _mode(model: nn.Module) -> str:
    return "train" if model.training else "eval"


def _fill_zero_parts(probe: Probe, views: Sequence[BlockView]) -> None:
    """Give parts that are zero random numbers, since a rescaling cannot move them."""
    for view in views:
        value = probe.parameters[view.parameter]
        zero = ~view.split(value).flatten(1).any(1)
        if zero.any():
            other = value.clone()
            probe.fill(other)
            keep = view.scaled(torch.ones_like(value), (~zero).to(value))
            value.copy_(value * keep + other * (1 - keep))


def _decide(probe: Probe, views: Sequence[BlockView]) -> list[list[ScaleInvariance]]:
    probe.without_eps()
    test = _Test(probe)
    kinds = [_Kinds(test, view) for view in views]
    probe.with_eps()
    own = probe.plain() if probe.has_eps else test.wanted
    return [kind.results(own) for kind in kinds]


class _Test:
    """The outputs and gradients at the model's point, and the rounding of the outputs there."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.wanted = probe.plain()
        unit = torch.finfo(probe.dtype).eps
        nearby = {}
        for name, value in probe.parameters.items():
            draw = torch.randn(value.shape, generator=probe.generator, dtype=torch.float64)
            nearby[name] = value * (1 + 4 * unit * draw.to(value))
        noise = deviation(probe.plain(nearby), self.wanted)
        self.tolerance = _SAFETY * max(noise, 8 * unit)
        self.cosine_tolerance = min(_GRADIENT_SAFETY * self.tolerance, 1e-2)
        self.gradients = probe.gradients()

    def scaled(self, view: BlockView, factors: Tensor) -> float:
        """How much the outputs change if the parts (or rows) are multiplied by factors."""
        value = self.probe.parameters[view.parameter]
        moved = view.scaled(value, factors.to(value))
        return deviation(self.probe.plain({view.parameter: moved}), self.wanted)


class _Kinds:
    """The verdict on every part of one block."""

    def __init__(self, test: _Test, view: BlockView) -> None:
        self.test, self.view = test, view
        value, grad = (view.split(t[view.parameter]) for t in (test.probe.parameters, test.gradients))
        self.cosines = _cosine(value.flatten(1), grad.flatten(1))
        self.row_cosines = _cosine(value, grad)
        self.still = self._slope(value, grad) < test.tolerance
        self.cosines[self.still] = 0.0  # of a gradient that is rounding, a cosine says nothing
        self.deviations = torch.zeros(view.parts, dtype=torch.float64)
        small = self.cosines.abs() <= test.cosine_tolerance
        for group in (small, ~small):
            self._test_parts(group.nonzero()[:, 0].tolist())
        self.invariant = self.deviations <= test.tolerance
        self.unused = self._unused()
        self.by_row = self._by_row()

    @staticmethod
    def _slope(value: Tensor, grad: Tensor) -> Tensor:
        """The size of the change that a move as long as the block could make, to first order."""
        return value.flatten(1).norm(dim=1) * grad.flatten(1).norm(dim=1)

    def _factors(self, parts: list[int], factor: float | None) -> Tensor:
        """Ones, and for some parts a factor, or random ones if it is None."""
        factors = torch.ones(self.view.parts, dtype=torch.float64)
        drawn = self.test.probe.random((len(parts),)).cpu().double()
        factors[parts] = drawn if factor is None else factor
        return factors

    def _test_parts(self, parts: list[int]) -> None:
        """Rescale parts: one by its factors, several together by random ones, halved while they change it."""
        if not parts:
            return
        if len(parts) == 1:
            moved = [self.test.scaled(self.view, self._factors(parts, factor)) for factor in _FACTORS]
            self.deviations[parts] = max(moved)
            return
        together = self.test.scaled(self.view, self._factors(parts, None))
        self.deviations[parts] = together
        suspected = bool((self.cosines[parts].abs() <= self.test.cosine_tolerance).all())
        if together > self.test.tolerance and suspected:
            half = len(parts) // 2
            self._test_parts(parts[:half])
            self._test_parts(parts[half:])

    def _unused(self) -> Tensor:
        """Which parts the outputs do not depend on: those with no gradient, whatever their values."""
        unused = self.invariant & self.still
        if unused.any():
            value = self.test.probe.parameters[self.view.parameter]
            keep = self.view.scaled(torch.ones_like(value), (~unused).to(value))
            other = value.clone()
            self.test.probe.fill(other)
            moved = self.test.probe.plain({self.view.parameter: value * keep + other * (1 - keep)})
            if deviation(moved, self.test.wanted) > self.test.tolerance:
                return torch.zeros_like(unused)
        return unused

    def _by_row(self) -> Tensor:
        """Which invariant parts allow every row its own factor."""
        view, bound = self.view, self.test.cosine_tolerance
        candidates = self.invariant & ~self.unused & (self.row_cosines.abs() <= bound).all(1).cpu()
        if view.rows == 1 or len(view.shape) < 2 or not candidates.any():
            return torch.zeros_like(self.invariant)
        factors = self.test.probe.random((view.parts, view.rows)).cpu()
        factors[~candidates] = 1.0
        holds = self.test.scaled(view, factors) <= self.test.tolerance
        return candidates if holds else torch.zeros_like(candidates)

    def results(self, own: list[Tensor]) -> list[ScaleInvariance]:
        """Return the verdicts; `own` are the outputs with the model's own eps, which the probe has now."""
        breaking = self.deviations.clone()
        held = (self.invariant & ~self.unused).nonzero()[:, 0].tolist()
        if held and self.test.probe.has_eps:
            value = self.test.probe.parameters[self.view.parameter]
            moved = self.view.scaled(value, self._factors(held, _FACTORS[1]).to(value))
            breaking[held] = deviation(self.test.probe.plain({self.view.parameter: moved}), own)
        return [self._result(k, label, float(breaking[k])) for k, label in enumerate(self.view.labels)]

    def _result(self, k: int, label: str, breaking: float) -> ScaleInvariance:
        kind = ScaleKind.WHOLE if self.invariant[k] else ScaleKind.NONE
        if self.unused[k]:
            kind = ScaleKind.UNUSED
        elif self.by_row[k]:
            kind = ScaleKind.ROW
        cosine = float(self.cosines[k])
        flat = abs(cosine) <= self.test.cosine_tolerance
        return ScaleInvariance(
            label,
            kind,
            float(self.deviations[k]),
            self.test.tolerance,
            breaking,
            cosine,
            flat == (kind is not ScaleKind.NONE),
        )


def _cosine(value: Tensor, grad: Tensor) -> Tensor:
    """The cosine along the last axis, 0 where a vector is zero."""
    product = (value * grad).sum(-1)
    size = value.norm(dim=-1) * grad.norm(dim=-1)
    return torch.where(size > 0, product / size, 0.0)
