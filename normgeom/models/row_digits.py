"""A recurrent classifier that reads an image row by row."""

from typing import Any

import torch
from torch import nn

from normgeom.models.readout import check_core, outputs_of


class RowDigits(nn.Module):
    """The class of an image from a recurrent core that has read its rows, top to bottom.

    `logits = V h_T + c`, with `h_T` the core's output after the last row.

    Args:
        core: called as torch.nn.LSTM is, `core(rows) -> (outputs, state)`, with time first; its input_size
            is the number of pixels in a row.
        classes: number of classes.
        device: where the readout is made.
        dtype: type of the readout; the core's own is its own.

    Raises:
        TypeError: if core is not a recurrent module.
        ValueError: if there are fewer than 2 classes, or the core takes the batch first.

    Source: Le, Jaitly, Hinton 2015 (arXiv:1504.00941), section 4.2, which reads pixel by pixel.

    >>> model = RowDigits(nn.GRU(8, 16), classes=10)
    >>> tuple(model(torch.rand(8, 3, 8)).shape)  # 8 rows of 3 images
    (3, 10)
    """

    def __init__(
        self,
        core: Any,
        classes: int = 10,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if classes < 2:
            raise ValueError(f"classes must be at least 2; got {classes}.")
        check_core(core)
        self.core = core
        self.classes = classes
        self.readout = nn.Linear(outputs_of(core), classes, device=device, dtype=dtype)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, classes) for rows (time, batch, pixels)."""
        if rows.ndim != 3 or not rows.is_floating_point():
            raise ValueError(
                "rows must be floating-point numbers of shape (time, batch, pixels); got "
                f"{rows.dtype} of shape {tuple(rows.shape)}."
            )
        outputs, _ = self.core(rows)
        return self.readout(outputs[-1])
