"""What is discovered about: outputs as a function of all free parameters in one vector, and of drawn data."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

Shapes = dict[str, tuple[int, ...]]
STEP = 1e-3  # of the differences; with one extrapolation their error is about its fourth power
ROUNDOFFS = 4.0
_TRIES = 20
_STILL = 1e-7
_NEAR, _BENT = 2.0**-23, 2.0**-37


@dataclass(frozen=True)
class Subject:
    """A function of parameters and data, and where it is looked at.

    Attributes:
        name: what tables call it.
        shapes: the parameters and their shapes, in the order of the flat vector.
        data_shape: of the data that are drawn.
        function: maps parameters by name and data to a tensor.
        device: where it is evaluated; the linear algebra is done on the CPU.
        scale: the size of the parameters that are drawn.
    """

    name: str
    shapes: Shapes
    data_shape: tuple[int, ...]
    function: Callable[[dict[str, Tensor], Tensor], Tensor]
    device: torch.device
    scale: float = 1.0

    @property
    def size(self) -> int:
        """The number p of free parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the parameters by name."""
        parts = vector.split([math.prod(shape) for shape in self.shapes.values()])
        shapes = self.shapes.items()
        # Copies, since a layer may compute in place, which autograd does not allow on parts of a tensor.
        return {name: part.reshape(shape).clone() for (name, shape), part in zip(shapes, parts, strict=True)}

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return a Gaussian parameter vector and Gaussian data at which the outputs are finite.

        Raises:
            ValueError: if there is none among many draws.
        """
        for _ in range(_TRIES):
            vector, data = (
                torch.randn(shape, generator=generator, dtype=torch.float64)
                for shape in ((self.size,), self.data_shape)
            )
            vector = self.scale * vector
            if self.outputs(vector, data).isfinite().all():
                return vector, data
        raise ValueError(
            f"{self.name} must have finite outputs at Gaussian parameters and data; at {_TRIES} of "
            f"{_TRIES} draws it had not. Write it in parameters that may have any value."
        )

    def outputs(self, vector: Tensor, data: Tensor) -> Tensor:
        """Return the outputs as one vector, outside of autograd."""
        with torch.no_grad():
            return self._called(vector.clone(), data).double().cpu()

    def jacobian(self, vector: Tensor, data: Tensor, generator: torch.Generator) -> Tensor:
        """Return rows that span the row space of the Jacobian that autograd sees, (at most p + 2, p).

        They are relative to the outputs and the parameters, so that 1 is large and rounding is 1e-16.
        """
        outputs = self.outputs(vector, data)
        count, scale = outputs.numel(), _scale(vector, outputs)
        # Random combinations span the row space as well, where there are more outputs than parameters.
        most = self.size + 2
        seeds = (
            torch.eye(count, dtype=torch.float64)
            if count <= most
            else torch.randn(most, count, generator=generator, dtype=torch.float64)
        )
        found = self._pulled_back(vector, data, seeds) * scale
        if not found.isfinite().all():
            raise ValueError(
                f"{self.name} must have a finite derivative where its outputs are finite; it has none at "
                "Gaussian parameters and data. A root or a norm of 0 in it is the usual cause."
            )
        return found

    def _pulled_back(self, vector: Tensor, data: Tensor, seeds: Tensor) -> Tensor:
        """The gradients of combinations of the outputs, one a row; 0 if there is no graph."""
        with torch.enable_grad():
            leaf = vector.clone().requires_grad_()
            outputs = self._called(leaf * 1, data)
            if not outputs.requires_grad:
                return torch.zeros(len(seeds), self.size, dtype=torch.float64)
            rows = [
                torch.autograd.grad(outputs, leaf, seed, retain_graph=True, materialize_grads=True)[0]
                for seed in seeds.to(outputs)
            ]
        return torch.stack(rows).detach()

    def difference(self, vector: Tensor, data: Tensor) -> Tensor:
        """Return the Jacobian of the function itself, (outputs, p), whatever its gradient says; as above."""
        axes = torch.eye(self.size, dtype=torch.float64)
        columns = [self.slope(vector, data, axis) for axis in axes]
        return torch.stack(columns, dim=1) * _scale(vector, self.outputs(vector, data))

    def slope(self, vector: Tensor, data: Tensor, along: Tensor) -> Tensor:
        """Return the derivative of the outputs along a line, by central differences extrapolated."""

        def central(step: float) -> Tensor:
            step = step * self.scale
            up, down = (self.outputs(vector + sign * step * along, data) for sign in (1, -1))
            return (up - down) / (2 * step)

        return (4 * central(STEP / 2) - central(STEP)) / 3

    def disagreement(self, vector: Tensor, data: Tensor, generator: torch.Generator) -> float:
        """Return how far autograd's derivative of a random output is off that of the function, relative."""
        along = torch.randn(self.size, generator=generator, dtype=torch.float64)
        slope = self.slope(vector, data, along)
        seed = torch.randn(slope.shape, generator=generator, dtype=torch.float64)
        seen = self._pulled_back(vector, data, seed[None])[0] @ along
        # Differences of outputs that do not move are their rounding, which must not count as a slope.
        size = slope.abs() + _STILL * self.outputs(vector, data).abs() / vector.norm()
        return float((seen - seed @ slope).abs() / (seed.abs() @ size).clamp_min(1e-300))

    def rounding(self, vector: Tensor, data: Tensor, generator: torch.Generator) -> float:
        """Return how far outputs move by rounding, relative to the largest, and no less than 8 roundoffs."""
        eps = torch.finfo(torch.float64).eps
        draw = torch.randn(self.size, generator=generator, dtype=torch.float64)
        before = self.outputs(vector, data)
        nearby = self.outputs(vector * (1 + ROUNDOFFS * eps * draw), data)
        # Equally spaced points are bent by curvature, which is nothing here, and by arithmetic in float32.
        one, two = (self.outputs(vector * (1 + k * _NEAR * draw), data) for k in (1, 2))
        bend = change(two - 2 * one + 2 * before, before)
        return max(change(nearby, before), 8 * eps, bend if bend > _BENT else 0.0)

    def _called(self, vector: Tensor, data: Tensor) -> Tensor:
        with _same_random_numbers(self.device):
            # A layer that computes in place must not reach the caller's data.
            outputs = self.function(self.split(vector.to(self.device)), data.clone().to(self.device))
        if not isinstance(outputs, Tensor) or not outputs.is_floating_point():
            kind = outputs.dtype if isinstance(outputs, Tensor) else type(outputs).__name__
            raise TypeError(f"{self.name} must return a floating-point tensor; got {kind}.")
        if not outputs.numel():
            raise ValueError(f"{self.name} must return outputs; got shape {tuple(outputs.shape)}.")
        return outputs.reshape(-1)


def _scale(vector: Tensor, outputs: Tensor) -> float:
    """The factor that makes a derivative relative; 1 where all outputs are 0, as all derivatives are."""
    return float(vector.norm() / outputs.norm()) if bool(outputs.any()) else 1.0


def change(after: Tensor, before: Tensor) -> float:
    """Return the largest change relative to the largest output; one that is not a number is infinite."""
    size = before.abs().max().clamp_min(torch.finfo(before.dtype).tiny)
    return float(((after - before).abs().max() / size).nan_to_num(float("inf"), float("inf")))


@contextmanager
def _same_random_numbers(device: torch.device) -> Iterator[None]:
    """Give a layer that draws random numbers the same at every call, and put the state back."""
    index = device.index or 0
    with torch.random.fork_rng(devices=[index] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(0)
        if device.type == "cuda":
            torch.cuda.default_generators[index].manual_seed(0)
        yield
