"""What the norms of a recurrent layer divide by, seen on a copy: the layer and its speed stay as they are."""

from typing import Any

import torch
import torch.nn.functional as F

from normgeom.copies import twin
from normgeom.models.arguments import check_input, is_ids
from normgeom.models.places import GainBiasNorm
from normgeom.models.recurrent import Recurrent


def sigmas(core: Recurrent, x: torch.Tensor, *, state: Any = None) -> dict[str, torch.Tensor]:
    """Return `sqrt(var + eps)` of the summed inputs of every norm, at every step of every case.

    The layer runs once in evaluation mode on a copy, which costs a forward pass of plain operations.

    Args:
        core: an `LNRNN`, `LNLSTM`, `LNGRU` or `DRAWLSTM`.
        x: (steps, cases, inputs) or ids (steps, cases), with `batch_first` (cases, steps, ...).
        state: the initial state, as the core takes it.

    Returns:
        (steps, cases, segments) by the name of the norm, such as `layer0.norm_recurrent`, in the units of its
        summed inputs; the steps are those of the input, for both directions.

    Raises:
        TypeError: if the core is none of normgeom's, or the input is no tensor.
        ValueError: if the input has no axis of cases.

    >>> from normgeom.models.recurrent import LNLSTM
    >>> found = sigmas(LNLSTM(3, 4, eps=1e-4), torch.ones(7, 5, 3))
    >>> found["layer0.norm_recurrent"].shape
    torch.Size([7, 5, 1])
    >>> float(found["layer0.norm_recurrent"][0, 0])  # h = 0: sqrt(eps)
    0.0099...
    """
    if not isinstance(core, Recurrent):
        raise TypeError(f"the core must be a recurrent layer of normgeom; got {type(core).__name__}.")
    check_input(x, core.input_size)
    if is_ids(x):
        x = F.one_hot(x.long(), core.input_size).to(next(core.parameters()).dtype)
    if x.ndim != 3:
        raise ValueError(f"the input must have axes of steps and cases; got shape {tuple(x.shape)}.")
    copied, seen = twin(core).eval(), dict[str, list[torch.Tensor]]()
    for name, part in copied.named_modules():
        part._forward_hooks.clear()
        if isinstance(part, GainBiasNorm):
            each = seen.setdefault(name, [])
            part.register_forward_hook(lambda part, inputs, _, each=each: each.append(part.sigma(inputs[0])))
    with torch.no_grad():
        copied(x, state)
    return {name: _in_order(name, each) for name, each in seen.items()}


def _in_order(name: str, each: list[torch.Tensor]) -> torch.Tensor:
    """Return the sigmas of all steps, whether the norm was called once or at every step."""
    found = each[0] if each[0].ndim == 3 else torch.stack(each)
    return found.flip(0) if name.split(".")[0].endswith("_reverse") else found
