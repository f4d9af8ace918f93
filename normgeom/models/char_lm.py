"""A recurrent language model of characters."""

from typing import Any

import torch
from torch import nn

from normgeom.models.arguments import as_sizes, check_like
from normgeom.models.readout import check_core, outputs_of, read_ids


class CharLM(nn.Module):
    """The distribution of the next character, from a recurrent core and a linear readout of its outputs.

    `logits_t = V h_t + c`, with `h_t` the core's output after characters 1 to t, read as one-hot vectors;
    `p(x_{t+1} | x_1 ... x_t) = softmax(logits_t)`.

    Args:
        core: called as torch.nn.LSTM is, `core(inputs, state) -> (outputs, state)`, with time first.
            normgeom's layers get the ids, any other core gets one-hot vectors (time, batch, characters).
        characters: size of the vocabulary, which is also the core's input_size.
        device: where the readout is made.
        dtype: type of the readout; the core's own is its own.

    Raises:
        TypeError: if core is not a recurrent module.
        ValueError: if the sizes do not fit, or the core looks ahead or takes the batch first.

    Source: Graves 2013 (arXiv:1308.0850), sections 2 and 3.

    >>> from normgeom.models import LNLSTM
    >>> model = CharLM(LNLSTM(5, 8), 5)
    >>> logits, state = model(torch.tensor([[0, 1], [4, 2], [3, 3]]))  # 3 characters of 2 texts
    >>> tuple(logits.shape), tuple(state[0].shape)
    ((3, 2, 5), (1, 2, 8))
    >>> further, _ = model(torch.tensor([[1, 1]]), state)  # the text goes on from a state
    """

    def __init__(
        self,
        core: Any,
        characters: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        (characters,) = as_sizes(characters=characters)
        check_core(core)
        if core.input_size != characters:
            raise ValueError(
                f"core must have input_size {characters}, the size of the vocabulary; got {core.input_size}."
            )
        if getattr(core, "bidirectional", False):
            raise ValueError("core must read forwards only: backwards, it sees the character to predict.")
        self.core = core
        self.characters = characters
        self.readout = nn.Linear(outputs_of(core), characters, device=device, dtype=dtype)

    def forward(self, ids: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        """Return logits (time, batch, characters) for ids (time, batch), and the state after the last one."""
        if not isinstance(ids, torch.Tensor):
            raise TypeError(f"ids must be a tensor; got {type(ids).__name__}.")
        if ids.ndim != 2 or ids.is_floating_point():
            raise ValueError(
                f"ids must be integers of shape (time, batch); got {ids.dtype} of shape {tuple(ids.shape)}."
            )
        outputs, state = read_ids(self.core, ids, state)
        check_like(self.readout.weight, outputs=outputs)
        return self.readout(outputs), state
