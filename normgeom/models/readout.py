"""What a model with a linear readout asks of a recurrent core, normgeom's or torch's."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from normgeom.models.arguments import check_input
from normgeom.models.recurrent import Recurrent


def check_core(core: Any) -> None:
    """Raise an error for what is no recurrent core, or takes the batch first."""
    if not isinstance(core, nn.Module) or not hasattr(core, "input_size") or not hasattr(core, "hidden_size"):
        raise TypeError(
            "core must be a recurrent module with input_size and hidden_size, such as LNLSTM or nn.LSTM; "
            f"got {type(core).__name__}."
        )
    if getattr(core, "batch_first", False):
        raise ValueError("core must take time first; got batch_first=True. Build it with batch_first=False.")


def outputs_of(core: Any) -> int:
    """Return the size of a core's output at one step."""
    directions = 2 if getattr(core, "bidirectional", False) else 1
    return directions * (getattr(core, "proj_size", 0) or core.hidden_size)


def read_ids(core: Any, ids: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
    """Run a core on ids; normgeom's own take them as they are, others get one-hot vectors."""
    if isinstance(core, Recurrent):
        return core(ids, state)
    check_input(ids, core.input_size)
    like = next(core.parameters())
    identity = torch.eye(core.input_size, dtype=like.dtype, device=like.device)
    return core(functional.embedding(ids, identity), state)
