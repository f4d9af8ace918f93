"""What a model asks of a recurrent core."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional


def check_core(core: Any, *, inputs: int, what: str) -> None:
    """Raise an error for a core that does not read sequences of this many inputs forwards, time first."""
    if not isinstance(core, nn.Module) or not hasattr(core, "input_size") or not hasattr(core, "hidden_size"):
        raise TypeError(
            "core must be a recurrent module with input_size and hidden_size, such as nn.LSTM; "
            f"got {type(core).__name__}."
        )
    if core.input_size != inputs:
        raise ValueError(f"core must have input_size {inputs}, {what}; got {core.input_size}.")
    if getattr(core, "batch_first", False):
        raise ValueError("core must take time first; got batch_first=True. Build it with batch_first=False.")


def outputs_of(core: Any) -> int:
    """Return the size of a core's output at one time."""
    directions = 2 if getattr(core, "bidirectional", False) else 1
    return directions * (getattr(core, "proj_size", 0) or core.hidden_size)


def read(core: Any, inputs: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
    """Run a core on vectors, or on ids, which torch's own cores get as one-hot vectors."""
    if not inputs.is_floating_point() and isinstance(core, nn.RNNBase):
        identity = torch.eye(core.input_size, dtype=core.weight_hh_l0.dtype, device=inputs.device)
        inputs = functional.embedding(inputs, identity)
    return core(inputs, state)
