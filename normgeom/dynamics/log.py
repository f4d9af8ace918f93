"""The rows of a run: kept on their device until there are many, so that a step waits for nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normgeom.optimizers.rules import Rule

HELD = 256


@dataclass
class Log:
    """What was measured at the steps that are logged.

    Attributes:
        at: the steps, from 1.
        measured: arrays (logs, columns, blocks) in the order of the blocks, once they are fetched.
        skipped: whether an AMP scaler left the step out, likewise.
        rules: of every log, the rule of every block.
    """

    at: list[int] = field(default_factory=list)
    measured: list[np.ndarray] = field(default_factory=list)
    skipped: list[bool] = field(default_factory=list)
    rules: list[list[Rule]] = field(default_factory=list)
    _extra: dict[str, list[Any]] = field(default_factory=dict)
    _waiting: list[tuple[Tensor, Tensor | bool]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether so much waits that it should be fetched."""
        return len(self._waiting) >= HELD

    @property
    def extra(self) -> dict[str, np.ndarray]:
        """Further columns by name, each (logs, blocks)."""
        return {
            name: torch.stack([torch.as_tensor(row) for row in rows]).double().numpy()
            for name, rows in self._extra.items()
        }

    def add(
        self, step: int, row: Tensor, skipped: Tensor | bool, rules: list[Rule], extra: Mapping[str, Any]
    ) -> None:
        """Log one step.

        Args:
            step: its number.
            row: shape (columns, blocks), on any device.
            skipped: whether it was left out.
            rules: of every block.
            extra: further columns by name, each (blocks,).
        """
        self._waiting.append((row, skipped))
        self.at.append(step)
        self.rules.append(rules)
        for name, value in extra.items():
            self._extra.setdefault(name, []).append(value)

    def fetch(self, order: Sequence[int]) -> None:
        """Bring what waits to memory, its blocks in this order: only then is the device waited for."""
        if not self._waiting:
            return
        rows = torch.stack([row for row, _ in self._waiting]).cpu().numpy()
        self.measured.extend(rows[:, :, order])
        self.skipped.extend(bool(skipped) for _, skipped in self._waiting)
        self._waiting.clear()
