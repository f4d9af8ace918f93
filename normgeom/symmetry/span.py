"""The span of rows that come one after the other."""

import numpy as np


class Span:
    """An orthonormal basis of rows, and how many rows added nothing to it.

    A column is measured by its first entry that is not zero, so that blocks of all sizes count alike.

    Args:
        tolerance: what may be left of a row that lies in the span, relative to its length.

    >>> span = Span(1e-8)
    >>> for row in ([1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 1.0, 1e-3]):
    ...     span.add(np.array(row))
    >>> len(span.basis), span.idle
    (2, 1)
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.basis = np.zeros((0, 0))
        self.idle = 0
        self._scale = np.zeros(0)

    def add(self, row: np.ndarray) -> None:
        """Take in a row."""
        if not len(self._scale):
            self._scale, self.basis = np.zeros(len(row)), np.zeros((0, len(row)))
        self._scale = np.where(self._scale == 0, np.abs(row), self._scale)
        left = row / np.where(self._scale == 0, 1.0, self._scale)
        length = np.linalg.norm(left)
        for _ in range(2):
            left = left - self.basis.T @ (self.basis @ left)
        if np.linalg.norm(left) > self.tolerance * length:
            self.basis = np.vstack([self.basis, left / np.linalg.norm(left)])
        else:
            self.idle += 1
