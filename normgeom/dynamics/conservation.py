"""Check the exact laws of a run while it runs, on the user's own loop."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn, optim

from normgeom.dynamics.laws import ColumnSums, LawReport, NormGrowth
from normgeom.dynamics.laws.check import StepSeen
from normgeom.dynamics.steps import Steps
from normgeom.optimizers.rules import group_of, rule_of
from normgeom.symmetry import Block, BlockView, resolve_blocks


class Conservation:
    """The laws of a run; made by `conservation`, and filled while its `with` block is open."""

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, blocks: Sequence[Block | str] | None, scaler: Any
    ) -> None:
        self._optimizer = optimizer
        named = dict(model.named_parameters())
        self._views = resolve_blocks(model, blocks if blocks is not None else _weights(named, optimizer))
        for view in self._views:
            group_of(optimizer, named[view.parameter])
        self._parameters = {view.parameter: named[view.parameter] for view in self._views}
        self._growth = [NormGrowth() for _ in self._views]
        self._columns = [_column_law(view) for view in self._views]
        self._steps = Steps(optimizer, self, scaler)
        self._open = False
        self._before: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor | None] = {}

    def __enter__(self) -> Self:
        """Start to watch, from the weights and the momentum as they are now."""
        if self._open:
            raise RuntimeError("this check is open already; call conservation again for a second one.")
        for view, columns in zip(self._views, self._columns, strict=True):
            if columns is not None:
                columns.start(self._buffer(view))
        self._steps.open()
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to watch; model and optimizer are as if they had not been watched."""
        self._steps.close()
        self._open = False

    def wants(self, step: int) -> bool:
        """Every step counts."""
        return True

    def passed(self, step: int) -> None:
        """Do nothing: no step is left out."""

    def weights(self, step: int) -> None:
        """Keep the weights before a step."""
        self._before = {name: _exact(value) for name, value in self._parameters.items()}
        self._rules = {
            name: rule_of(self._optimizer, group_of(self._optimizer, value))
            for name, value in self._parameters.items()
        }

    def gradients(self, scale: Tensor | None) -> None:
        """Keep the gradients of a step."""
        found = {name: value.grad for name, value in self._parameters.items()}
        self._gradients = {
            name: None if grad is None else _exact(grad) / (1 if scale is None else scale.double())
            for name, grad in found.items()
        }

    def moved(self, skipped: Tensor | bool) -> None:
        """Hand the step to the laws, unless it was left out or there is no gradient."""
        if bool(skipped):
            return
        for view, growth, columns in zip(self._views, self._growth, self._columns, strict=True):
            name, grad = view.parameter, self._gradients[view.parameter]
            if grad is None:
                continue
            parameter = self._parameters[name]
            before, slope, after = map(view.split, (self._before[name], grad, _exact(parameter)))
            unit = torch.finfo(parameter.dtype).eps / 2
            step = StepSeen(before, slope, after, self._rules[name], unit)
            growth.see(step)
            if columns is not None:
                columns.see(step)

    def report(self) -> LawReport:
        """Return every law on every block so far.

        Raises:
            ValueError: if no step was seen.
        """
        checks = []
        for view, growth, columns in zip(self._views, self._growth, self._columns, strict=True):
            for law in (growth, columns):
                checks.extend(law.checks(view.labels) if law is not None else [])
        if not checks:
            raise ValueError(
                "no step with a gradient was seen: run the loop inside `with conservation(...)`, and let it "
                "step the optimizer that was given."
            )
        return LawReport(tuple(checks))

    def _buffer(self, view: BlockView) -> Tensor | None:
        """The optimizer's momentum buffer of a block, if it has one."""
        state = self._optimizer.state.get(self._parameters[view.parameter], {})
        buffer = state.get("momentum_buffer")
        return None if buffer is None else view.split(_exact(buffer))


def conservation(
    model: nn.Module,
    optimizer: optim.Optimizer,
    *,
    blocks: Sequence[Block | str] | None = None,
    scaler: Any = None,
) -> Conservation:
    """Return a check of the exact laws of training, to be opened with `with` around the loop.

    *norm growth*: `‖w‖²` grows by exactly `η²‖∇‖²` a step of SGD if the function does not see the scale of
    w, and is multiplied by `(1 − ηλ)²` by weight decay. *column sums*: `1ᵀW` is conserved by SGD, with
    momentum too, if it does not see shifts of all units, and decays as `(1 − ηλ)^t`. Every step is followed
    in float64; the tolerance is the rounding of the weights in their own type.

    Args:
        model: names the parameters.
        optimizer: the one that the loop steps. The laws are of SGD: for others the numbers are given, and
            `holds` is None.
        blocks: `Block`s or names; default every trainable tensor of two or more axes.
        scaler: the `torch.amp.GradScaler`, if there is one.

    Raises:
        ValueError: if a block does not exist or the optimizer does not hold it.

    Source: van Laarhoven 2017; Kunin et al. 2021 (conservation under gradient flow); here for finite steps.

    >>> net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.LayerNorm(4, eps=0.0), nn.Linear(4, 1)).double()
    >>> optimizer, x = optim.SGD(net.parameters(), lr=0.1), torch.randn(8, 3).double()
    >>> with conservation(net, optimizer, blocks=["0.weight"]) as laws:
    ...     for _ in range(3):
    ...         optimizer.zero_grad()
    ...         net(x).square().mean().backward()
    ...         optimizer.step()
    >>> [(check.law, check.holds) for check in laws.report()]
    [('norm growth', True), ('column sums', True)]
    """
    if not isinstance(model, nn.Module) or not isinstance(optimizer, optim.Optimizer):
        got = f"{type(model).__name__} and {type(optimizer).__name__}"
        raise TypeError(f"conservation takes (an nn.Module, a torch.optim.Optimizer); got {got}.")
    return Conservation(model, optimizer, blocks, scaler)


def _weights(named: dict[str, nn.Parameter], optimizer: optim.Optimizer) -> list[Block]:
    """The trainable tensors of two or more axes that the optimizer holds."""
    held = {id(value) for group in optimizer.param_groups for value in group["params"]}
    blocks = [Block(n) for n, v in named.items() if v.requires_grad and v.ndim > 1 and id(v) in held]
    if not blocks:
        raise ValueError("the optimizer must hold a weight of two or more axes of the model; it holds none.")
    return blocks


def _column_law(view: BlockView) -> ColumnSums | None:
    """The law of column sums, where there are several rows of several columns."""
    return None if view.rows == 1 or len(view.shape) < 2 else ColumnSums()


def _exact(value: Tensor) -> Tensor:
    """A copy in float64."""
    value = value.detach()
    return (value.to_dense() if value.is_sparse else value).to(torch.float64, copy=True)
