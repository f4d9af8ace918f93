"""What a law said and what the run did, step by step."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class History:
    """Changes since the first step that was seen, predicted and measured, one number for every part.

    Attributes:
        rows: after every step: predicted, measured, and the scale that their difference is judged against.
    """

    rows: list[tuple[list[float], list[float], list[float]]] = field(default_factory=list)

    def add(self, predicted: Tensor, measured: Tensor, scale: Tensor) -> None:
        """Add a step."""
        self.rows.append((predicted.tolist(), measured.tolist(), scale.tolist()))
