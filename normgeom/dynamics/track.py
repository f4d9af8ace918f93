"""Watch a training run: lengths, angles and rates of blocks of weights at every step, for any optimizer."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import pandas as pd
from torch import Tensor, nn, optim

from normgeom.dynamics.columns import RATIOS, tidy
from normgeom.dynamics.lengths import common_norms, lengths_of
from normgeom.dynamics.log import Log
from normgeom.dynamics.on_request import BatchMeasures, SummedInputs
from normgeom.dynamics.statistics import COLUMNS, Statistics
from normgeom.dynamics.steps import Steps
from normgeom.optimizers.rules import Rule, group_of, rule_of
from normgeom.symmetry import Block, ScaleInvariances, SymmetryMap, resolve_blocks, scale_invariance


class Tracker:
    """The record of a run; made by `track`, and filled while its `with` block is open.

    Attributes:
        scale_invariance: what the test on the batch found, None without a batch or with a map.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        *,
        blocks: Sequence[Block | str] | None,
        every: int,
        measures: BatchMeasures | None,
        summed_inputs: Mapping[str, str] | None,
        rule: Rule | None,
        scaler: Any,
        batch: Any,
        symmetries: SymmetryMap | None,
    ) -> None:
        self._model, self._optimizer, self._blocks = model, optimizer, blocks
        self._every, self._rule, self._batch, self._measures = every, rule, batch, measures
        named = dict(model.named_parameters())
        blocks = _trainable(named, optimizer) if blocks is None else blocks
        self._views = resolve_blocks(model, blocks)
        for view in self._views:
            _refuse_complex(view.parameter, named[view.parameter])
            group_of(optimizer, named[view.parameter])
        self._parameters = {view.parameter: named[view.parameter] for view in self._views}
        self._lengths = None if symmetries is None else lengths_of(symmetries, model, self.labels)
        self._inputs = SummedInputs(model, self._views, summed_inputs or {})
        self._statistics = Statistics(self._views, self._parameters)
        self._steps = Steps(optimizer, self, scaler)
        self._open = False
        self._log = Log()
        self.scale_invariance: ScaleInvariances | None = None

    @property
    def labels(self) -> list[str]:
        """The names of the blocks, as in the table."""
        return [label for view in self._views for label in view.labels]

    @property
    def steps(self) -> int:
        """How many steps were seen, logged or not, with those that an AMP scaler left out."""
        return self._steps.count

    def __enter__(self) -> Self:
        """Test the blocks on the batch if there is one, and start to watch."""
        if self._open:
            raise RuntimeError("this tracker is open already; call track again for a second one.")
        if self._batch is not None and self._lengths is None and self.scale_invariance is None:
            self.scale_invariance = scale_invariance(self._model, self._batch, blocks=self._views_as_blocks())
        self._steps.open()
        self._inputs.expect(self.wants(self._steps.count + 1))
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to watch; model and optimizer are as if they had not been watched."""
        self._steps.close()
        self._inputs.close()
        self._open = False

    def wants(self, step: int) -> bool:
        """Whether a step is logged: the first one, and every `every`-th after it."""
        return (step - 1) % self._every == 0

    def weights(self, step: int) -> None:
        """Look at the weights before a step."""
        self._now = step
        if not self._statistics.fits():
            self._log.fetch(self._statistics.order)
            self._statistics = self._statistics.remade()
        self._statistics.weights()
        self._groups = [self._rule_of(view.parameter) for view in self._views for _ in view.labels]
        if self._measures is not None:
            self._measures.weights()

    def gradients(self, scale: Tensor | None) -> None:
        """Look at the gradients of a step."""
        self._statistics.gradients(scale)

    def moved(self, skipped: Tensor | bool) -> None:
        """Look at the weights after a step, and log it."""
        row = self._statistics.moved()
        extra: dict[str, Any] = self._inputs.take()
        if self._measures is not None:
            self._inputs.close()  # what the measures call is not the run
            extra = {**extra, **self._measures.moved()}
        self._log.add(self._now, row, skipped, self._groups, extra)
        if self._log.is_full:
            self._log.fetch(self._statistics.order)
        self.passed(self._now)

    def passed(self, step: int) -> None:
        """Look at the summed inputs from here on if the next step is logged."""
        self._inputs.expect(self.wants(step + 1))

    def frame(self) -> pd.DataFrame:
        """Return a row for every logged step and block.

        Columns: `step` (from 1), `block`; `norm` ‖w‖ before the step; `gradient_norm` and `cosine` (of weight
        and gradient) of the gradient that the optimizer saw, so after accumulation, unscaling and clipping;
        `update_norm` ‖Δw‖, `relative_update` ‖Δw‖/‖w‖, `angular_update` ∠(w, w + Δw) in radians;
        `learning_rate` and `effective_learning_rate` as they were at the step; `column_sum` ‖1ᵀW‖ before the
        step and `column_drift` ‖1ᵀW − 1ᵀW₀‖ since the tracker was made, for blocks of several rows; `sigma`
        of the layer's summed inputs, `nats` and `curvature` where asked for; `scale_invariant` where a batch
        was given (`row`, `whole`, `none`, `unused`), else None; `skipped` if an AMP scaler left the step out.
        With a map, `scale_invariant` is what it says, `joint` for blocks that only a common factor leaves
        the function with, None for parts it did not look at; and the effective rate of blocks whose length
        is not free, alone or in common with other tracked ones, is NaN.
        Lengths are roots of sums of squares in the weights' own type, at least float32: there, weights and
        updates below 1e-19 or above 1e18 are out of its range.
        What is undefined (ratios of a zero block, a block without gradient) is NaN, never 0 or infinite.
        """
        log = self._log
        log.fetch(self._statistics.order)
        shape = (len(log.at), len(COLUMNS), len(self.labels))
        measured = np.stack(log.measured) if log.measured else np.empty(shape)
        at, skipped = np.array(log.at, dtype=int), np.array(log.skipped)
        frame = tidy(self.labels, at, measured, log.rules, skipped, log.extra, self._free_norms)
        kinds: dict[str, str | None] = {one.block: str(one.kind) for one in self.scale_invariance or ()}
        kinds |= {label: length.kind for label, length in (self._lengths or {}).items()}
        frame.insert(len(frame.columns) - 1, "scale_invariant", frame["block"].map(kinds.get))
        return frame

    def undefined(self) -> pd.DataFrame:
        """Return how many logged steps of every block have no cosine, relative update, angle or rate."""
        frame = self.frame()
        return frame[list(RATIOS)].isna().groupby(frame["block"], sort=False).sum()

    def rule_reason(self, block: str) -> str | None:
        """Return why a block has no effective learning rate, or None if it has one.

        Raises:
            ValueError: for a block that is not tracked.
        """
        if block not in self.labels:
            raise ValueError(f"the block must be one of {', '.join(self.labels)}; got {block!r}.")
        view = next(view for view in self._views if block in view.labels)
        return getattr(self._rule_of(view.parameter), "reason", None)

    def __repr__(self) -> str:
        """Say what is watched and how much was logged."""
        return f"Tracker({len(self.labels)} blocks, {self.steps} steps seen, {len(self._log.at)} logged)"

    def _views_as_blocks(self) -> list[Block]:
        return [Block(v.parameter, slice(v.start, v.stop), v.parts, v.axis) for v in self._views]

    def _free_norms(self, norms: np.ndarray) -> np.ndarray:
        """The norms on which effective rates depend: all their own without a map."""
        return norms if self._lengths is None else common_norms(self._lengths, self.labels, norms)

    def _rule_of(self, parameter: str) -> Rule:
        return self._rule or rule_of(self._optimizer, group_of(self._optimizer, self._parameters[parameter]))


def track(
    model: nn.Module,
    optimizer: optim.Optimizer,
    *,
    blocks: Sequence[Block | str] | None = None,
    every: int = 1,
    batch: Any = None,
    symmetries: SymmetryMap | None = None,
    nats: bool = False,
    curvature: bool = False,
    family: Any = None,
    summed_inputs: Mapping[str, str] | None = None,
    rule: Rule | None = None,
    scaler: Any = None,
) -> Tracker:
    """Return a tracker of a model's training, to be opened with `with`; the loop stays as it is.

    It hangs on the optimizer's step hooks, so accumulation, clipping, schedulers, closures and AMP need
    nothing. Model, optimizer, random state and results are bit-identical to those without it.

    Args:
        model: names the parameters.
        optimizer: any torch optimizer that holds the blocks.
        blocks: `Block`s, or names for whole tensors; default every trainable tensor of the optimizer.
        every: log the first step and every `every`-th after it; between, a step costs nothing.
        batch: what the model takes (a tensor, a tuple of arguments, or a dict of named arguments): tests at
            the start which blocks are scale invariant, and is where nats and curvature are measured.
        symmetries: the map of the model, from `scan`: says which blocks are scale invariant, instead of the
            test on the batch, and of which lengths the effective rates are.
        nats: measure KL(before || after) on the batch, each block moved alone.
        curvature: measure the Fisher curvature `ΔwᵀFΔw` of each block's update at the weights before it.
        family: the distribution of the model's outputs, for nats and curvature.
        summed_inputs: for a block (by label or parameter) the name of the module that normalizes its summed
            inputs; `sigma` is the mean over cases of the standard deviation of that module's input over its
            units, in the forward passes since the step before. `find_summed_inputs` proposes. For norms
            inside normgeom's recurrent layers, a logged step costs a second forward pass of the layer, by
            plain operations.
        rule: the update rule of an optimizer that `rule_of` does not know.
        scaler: the `torch.amp.GradScaler`, so that steps it leaves out are noticed.

    Raises:
        TypeError, ValueError: for arguments that do not fit each other, blocks that do not exist, or a
            parameter that the optimizer does not hold.

    Source: the primary measures of Wan et al. 2021 and Kosson et al. 2024.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.LayerNorm(8), nn.Linear(8, 1))
    >>> optimizer, x = optim.SGD(model.parameters(), lr=0.1), torch.randn(16, 4)
    >>> with track(model, optimizer, batch=x) as tracker:
    ...     for _ in range(3):
    ...         optimizer.zero_grad()
    ...         model(x).square().mean().backward()
    ...         optimizer.step()
    >>> frame = tracker.frame().set_index("block").loc["0.weight"]
    >>> frame["scale_invariant"].tolist(), bool(frame["norm"].is_monotonic_increasing)
    (['whole', 'whole', 'whole'], True)
    """
    if not isinstance(model, nn.Module) or not isinstance(optimizer, optim.Optimizer):
        got = f"{type(model).__name__} and {type(optimizer).__name__}"
        raise TypeError(f"track takes (an nn.Module, a torch.optim.Optimizer); got {got}.")
    if not isinstance(symmetries, SymmetryMap | None):
        raise TypeError(f"symmetries must be a SymmetryMap, from scan; got {type(symmetries).__name__}.")
    if not isinstance(every, int) or every < 1:
        raise ValueError(f"every must be a whole number of steps, at least 1; got {every!r}.")
    if (nats or curvature) and (batch is None or family is None):
        raise ValueError("nats and curvature need batch= and family=, for example family=Categorical().")
    tracker = Tracker(
        model,
        optimizer,
        blocks=blocks,
        every=every,
        measures=None,
        summed_inputs=summed_inputs,
        rule=rule,
        scaler=scaler,
        batch=batch,
        symmetries=symmetries,
    )
    if nats or curvature:
        tracker._measures = BatchMeasures(model, tracker._views, batch, family, nats, curvature)
    return tracker


def _refuse_complex(name: str, parameter: Tensor) -> None:
    """Raise an error for a block whose lengths and angles would be those of its real part alone."""
    if parameter.is_complex():
        raise TypeError(
            f"blocks must be of real parameters; {name} is {parameter.dtype}. Name the others as blocks."
        )


def _trainable(named: Mapping[str, Tensor], optimizer: optim.Optimizer) -> list[Block]:
    """The trainable tensors of the model that the optimizer holds."""
    held = {id(value) for group in optimizer.param_groups for value in group["params"]}
    blocks = [Block(name) for name, value in named.items() if value.requires_grad and id(value) in held]
    if not blocks:
        raise ValueError(
            "the optimizer must hold parameters of the model; it holds none: was it made from another "
            "model, or before the model was changed?"
        )
    return blocks
