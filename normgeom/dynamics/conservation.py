"""Check the exact laws of a run while it runs, on the user's own loop."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import pandas as pd
import torch
from torch import Tensor, nn, optim

from normgeom.dynamics.laws import LawReport
from normgeom.dynamics.laws.check import StepSeen, shortened
from normgeom.dynamics.quantities import Law, laws_of_map, laws_of_views
from normgeom.dynamics.steps import Steps
from normgeom.optimizers.rules import group_of, rule_of
from normgeom.symmetry import Block, SymmetryMap, resolve_blocks


class Conservation:
    """The laws of a run; made by `conservation`, and filled while its `with` block is open.

    Attributes:
        left_out: symmetries of the map without a law here, each with the reason.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        laws: Sequence[Law],
        scaler: Any,
        left_out: tuple[str, ...] = (),
    ) -> None:
        self._optimizer, self._laws, self.left_out = optimizer, laws, left_out
        named = dict(model.named_parameters())
        self._parameters = {term.parameter: named[term.parameter] for law in laws for term in law.terms}
        for value in self._parameters.values():
            group_of(optimizer, value)
        self._steps = Steps(optimizer, self, scaler)
        self._open = False
        self._before: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor | None] = {}

    def __enter__(self) -> Self:
        """Start to watch, from the weights and the momentum as they are now."""
        if self._open:
            raise RuntimeError("this check is open already; call conservation again for a second one.")
        buffers = {name: self._buffer(value) for name, value in self._parameters.items()}
        for law in self._laws:
            law.start(buffers)
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
        """Hand the step to the laws, unless it was left out."""
        if bool(skipped):
            return
        largest = [float(grad.abs().max()) for grad in self._gradients.values() if grad is not None]
        steps = {
            name: StepSeen(
                self._before[name],
                self._gradients[name],
                _exact(value),
                self._rules[name],
                torch.finfo(value.dtype).eps / 2,
                max(largest, default=0.0),
                type(self._optimizer).__name__,
            )
            for name, value in self._parameters.items()
        }
        for law in self._laws:
            law.see(steps)

    def quantities(self) -> pd.DataFrame:
        """Return what each symmetry conserves under gradient flow: a row for every law and block.

        Columns: `law`, `block` (a label of a block, of a part, or of a joint symmetry), `quantity`.
        """
        rows = [
            {"law": law.name, "block": label, "quantity": law.quantity}
            for law in self._laws
            for label in law.labels
        ]
        return pd.DataFrame(rows, columns=["law", "block", "quantity"])

    def report(self) -> LawReport:
        """Return every law on every block so far.

        Raises:
            ValueError: if no step was seen.
        """
        checks = [check for law in self._laws for check in law.checks()]
        if not checks:
            raise ValueError(
                "no step with a gradient was seen: run the loop inside `with conservation(...)`, and let it "
                "step the optimizer that was given."
            )
        return LawReport(tuple(checks))

    def frame(self) -> pd.DataFrame:
        """Return the drift of every quantity after every step with a gradient, predicted and measured.

        Columns: `law`, `block`, `step` (from 1), `predicted` and `measured` (the change since the first step
        that was seen; of sums its length), `scale` (what their difference is relative to: of norms the sum
        of all `|k_p| η² ‖∇_p‖²` so far, of sums that of absolute weights, or of absolute steps).
        """
        rows = [
            {
                "law": law.name,
                "block": label,
                "step": k + 1,
                "predicted": predicted[place],
                "measured": measured[place],
                "scale": scale[place],
            }
            for law in self._laws
            for k, (predicted, measured, scale) in enumerate(law.history.rows)
            for place, label in enumerate(law.labels)
        ]
        return pd.DataFrame(rows, columns=["law", "block", "step", "predicted", "measured", "scale"])

    def __repr__(self) -> str:
        """Return the quantities as a table, and what was left out."""
        frame = self.quantities()
        frame["block"] = frame["block"].map(shortened)
        table = str(frame.to_string(index=False))
        return "\n".join([table, *(f"left out: {one}" for one in self.left_out)])

    def _buffer(self, value: nn.Parameter) -> Tensor | None:
        """The optimizer's momentum buffer of a parameter, if it has one."""
        buffer = self._optimizer.state.get(value, {}).get("momentum_buffer")
        return None if buffer is None else _exact(buffer)


def conservation(
    model: nn.Module,
    optimizer: optim.Optimizer,
    *,
    symmetries: SymmetryMap | None = None,
    blocks: Sequence[Block | str] | None = None,
    scaler: Any = None,
) -> Conservation:
    """Return a check of the exact laws of training, to be opened with `with` around the loop.

    *norm growth*: `‖w‖²` grows by exactly `η²‖∇‖²` a step of SGD if the function does not see the scale of
    w, and is multiplied by `(1 − ηλ)²` by weight decay. *column sums*: `1ᵀW` is conserved by SGD, with
    momentum too, if it does not see shifts of all units, and decays as `(1 − ηλ)^t`. Every step is followed
    in float64; the tolerance is the rounding of the weights in their own type.

    With a map the laws are those of all its symmetries, and what each conserves under gradient flow is
    listed by `quantities()`: beside the two, *row sums* (shifts along the inputs), *joint norms* (blocks
    scaled together by `c^k_p` conserve `Σ k_p ‖w_p‖²`, which SGD moves by exactly `η² Σ k_p ‖∇_p‖²` a step),
    *joint sums*, and *dead blocks*, all of whose coordinates stay. A joint symmetry that holds unit by unit
    conserves such a sum for every unit; here it is the one of all. Blocks whose learning rates differ count
    with `k_p η_1/η_p`. A law whose symmetry only the model's eps breaks, or that float32 inside of a
    float64 model hides, has `holds` None and says by how much.

    Args:
        model: names the parameters.
        optimizer: the one that the loop steps. The laws are of SGD: for others the numbers are given, and
            `holds` is None.
        symmetries: the map of the model (or of one with the same parameters) in the mode it is trained in.
        blocks: without a map, `Block`s or names to which the first two laws are put; default every trainable
            tensor of two or more axes.
        scaler: the `torch.amp.GradScaler`, if there is one.

    Raises:
        TypeError: if an argument is of the wrong type.
        ValueError: if a block does not exist or the optimizer does not hold it, the map is of another model
            or has no symmetry of what is trained, or both a map and blocks are given.

    Source: van Laarhoven 2017; Du, Hu, Lee 2018 and Kunin et al. 2021 (conservation under gradient flow);
    here for finite steps.

    >>> net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.LayerNorm(4, eps=0.0), nn.Linear(4, 1)).double()
    >>> optimizer, x = optim.SGD(net.parameters(), lr=0.1), torch.randn(8, 3).double()
    >>> with conservation(net, optimizer, blocks=["0.weight"]) as laws:
    ...     for _ in range(3):
    ...         optimizer.zero_grad()
    ...         net(x).square().mean().backward()
    ...         optimizer.step()
    >>> [(check.law, check.holds) for check in laws.report()]
    [('norm growth', True), ('column sums', True)]
    >>> from normgeom.symmetry import scan
    >>> conservation(net, optimizer, symmetries=scan(net, x)).quantities()["quantity"].tolist()
    ['‖0.weight‖²', 'column sums of 0.weight', '‖1.weight‖² + ‖1.bias‖² − ‖2.weight‖²']
    """
    if not isinstance(model, nn.Module) or not isinstance(optimizer, optim.Optimizer):
        got = f"{type(model).__name__} and {type(optimizer).__name__}"
        raise TypeError(f"conservation takes (an nn.Module, a torch.optim.Optimizer); got {got}.")
    if symmetries is not None:  # a map names the parameters as the module does that torch.compile wraps
        model = getattr(model, "_orig_mod", model)
    named = dict(model.named_parameters())
    if symmetries is None:
        views = resolve_blocks(model, blocks if blocks is not None else _weights(named, optimizer))
        return Conservation(model, optimizer, list(laws_of_views(views)), scaler)
    if blocks is not None:
        raise ValueError("give symmetries= or blocks=, not both: the laws of a map are of the map's blocks.")
    if not isinstance(symmetries, SymmetryMap):
        raise TypeError(
            f"symmetries must be a SymmetryMap, what scan returns; got {type(symmetries).__name__}."
        )
    laws, left_out = laws_of_map(symmetries, model, _held(named, optimizer))
    return Conservation(model, optimizer, laws, scaler, left_out)


def _held(named: dict[str, nn.Parameter], optimizer: optim.Optimizer) -> list[str]:
    """The names of the trainable tensors that the optimizer holds."""
    held = {id(value) for group in optimizer.param_groups for value in group["params"]}
    return [name for name, value in named.items() if value.requires_grad and id(value) in held]


def _weights(named: dict[str, nn.Parameter], optimizer: optim.Optimizer) -> list[Block]:
    """The trainable tensors of two or more axes that the optimizer holds."""
    blocks = [Block(name) for name in _held(named, optimizer) if named[name].ndim > 1]
    if not blocks:
        raise ValueError("the optimizer must hold a weight of two or more axes of the model; it holds none.")
    return blocks


def _exact(value: Tensor) -> Tensor:
    """A copy in float64."""
    value = value.detach()
    return (value.to_dense() if value.is_sparse else value).to(torch.float64, copy=True)
