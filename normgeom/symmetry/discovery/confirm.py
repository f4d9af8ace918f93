"""Finite transforms: the flow of a field, and how much the outputs change along it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from normgeom.symmetry.discovery.subject import Subject, change

_TIMES = (0.7, -1.1, 2.0)
_SAFETY = 100.0
_POINTS = 3
_EXCUSED = 1e-6


@dataclass(frozen=True)
class Evidence:
    """What finite transforms say of some fields.

    Attributes:
        deviation: the largest change of an output, relative to the largest output.
        tolerance: the rounding that it is judged against.
    """

    deviation: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether rounding explains the change."""
        return self.deviation <= self.tolerance


class Finite:
    """Moves parameters along fields at a few points that are the same for all."""

    def __init__(self, subject: Subject, generator: torch.Generator) -> None:
        self.subject, self.generator = subject, generator
        self._points = [subject.draw(generator) for _ in range(_POINTS)]
        self._before = [subject.outputs(*point) for point in self._points]
        self._rounding = max(subject.rounding(*point, generator) for point in self._points)

    def follow(self, fields: Tensor, coefficients: int = 1) -> Evidence:
        """Return the largest change along fields (k, p, p + 1), of one size, at several times of both signs.

        The flow of V = A w + b is `exp(t [[A, b], [0, 0]])` on (w, 1). Constant fields with p + 1
        coefficients are also followed with a random affine coefficient each.
        """
        if coefficients > 1:
            fields = torch.cat([fields, self._with_coefficients(fields)])
        sized = fields / torch.linalg.matrix_norm(fields, 2)[:, None, None]
        square = torch.cat([sized, torch.zeros_like(sized[:, :1])], dim=1)
        worst, rounding = 0.0, self._rounding
        for time in _TIMES:
            for flow in torch.linalg.matrix_exp(time * square):
                deviation, noise = self._moved(flow)
                worst, rounding = max(worst, deviation), max(rounding, noise)
        return Evidence(worst, _SAFETY * rounding)

    def _moved(self, flow: Tensor) -> tuple[float, float]:
        """The change along one flow, and the rounding at its end of the point where it is largest."""
        worst, noise = 0.0, 0.0
        for (vector, data), before in zip(self._points, self._before, strict=True):
            moved = flow[:-1, :-1] @ vector + flow[:-1, -1]
            deviation = change(self.subject.outputs(moved, data), before)
            if _SAFETY * self._rounding < deviation <= _SAFETY * _EXCUSED:
                # An ill-conditioned end excuses as much as it loses, and no more.
                noise = max(noise, min(self.subject.rounding(moved, data, self.generator), _EXCUSED))
            worst = max(worst, deviation)
        return worst, noise

    def _with_coefficients(self, fields: Tensor) -> Tensor:
        """Each constant field times a random affine function of the parameters."""
        shape = (len(fields), 1, fields.shape[2])
        return fields[:, :, -1:] * torch.randn(shape, generator=self.generator, dtype=torch.float64)
