"""What a scan is given, and what it gets from the model: checked, with errors that name it."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn


def module_given(model: Any) -> nn.Module:
    """Return the module, or the one that `torch.compile` has wrapped: a compiled one cannot be copied.

    Raises:
        TypeError: for what is not a module.
        ValueError: if a part of it is compiled.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"the model must be an nn.Module; got {type(model).__name__}.")
    model = getattr(model, "_orig_mod", model)
    parts = [name for name, part in model.named_modules() if name and "_orig_mod" in part._modules]
    if parts:
        raise ValueError(
            f"no part of the model may be compiled; {', '.join(parts[:3])} is. Call this on the model before "
            "torch.compile, or compile in place with module.compile()."
        )
    return model


def check_select(select: Any) -> None:
    """Raise a TypeError for what picks no outputs."""
    if select is not None and not callable(select):
        hint = f", such as lambda out: out.{select}" if isinstance(select, str) else ""
        raise TypeError(
            f"select must be a function of what the model returns{hint}; got {type(select).__name__} "
            f"{select!r}."
        )


def picked(out: Any, select: Callable[[Any], Any] | None) -> Any:
    """Return what `select` picks of the model's output.

    Raises:
        ValueError: if it raises.
    """
    if select is None:
        return out
    try:
        return select(out)
    except ValueError:
        raise
    except Exception as why:
        raise ValueError(
            f"select must pick something of what the model returns, a {type(out).__name__}; it raised "
            f"{type(why).__name__}: {why}"
        ) from why


def check_finite(outputs: Sequence[Tensor]) -> None:
    """Raise a ValueError for outputs of which nothing can be said; a mask of infinities is no hindrance."""
    for out in outputs:
        bad = int((~out.isfinite()).sum())
        if out.isnan().any() or (bad and bad == out.numel()):
            raise ValueError(
                f"the outputs must be finite; {bad} of {out.numel()} numbers of one are not. Are the batch "
                "and the parameters finite? `select` picks other outputs."
            )
