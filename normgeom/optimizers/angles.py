"""The angle by which a step turns a block, without the loss of digits of an arc cosine."""

from dataclasses import dataclass

import torch
from torch import Tensor

_FAR = 40  # between the exponents of two vectors of which the shorter is lost in the difference


@dataclass(frozen=True)
class Turn:
    """What a step does to a vector `after`, seen from where it ended.

    Attributes:
        norm: `‖after‖`.
        along: the length of `before` along `after`.
        across: the length of `before` perpendicular to `after`.

    The latter two are NaN where `after` is zero.
    """

    norm: Tensor
    along: Tensor
    across: Tensor

    @property
    def angle(self) -> Tensor:
        """The angle in radians, NaN if a vector is zero."""
        undefined = (self.along == 0) & (self.across == 0)
        return torch.where(undefined, torch.nan, torch.atan2(self.across, self.along))


def turn(update: Tensor, after: Tensor) -> Turn:
    """Return how vectors (parts, coordinates) turned; `update` is used up.

    The update is what a step added. Its part perpendicular to the weights is formed before its length is
    taken, so that nothing cancels: an arc cosine in float32 sees no angle below 3e-4.
    """
    norm = torch.linalg.vector_norm(after, dim=1)
    share = products(update, after) / norm.square()
    across = torch.linalg.vector_norm(update.addcmul_(after, share[:, None], value=-1), dim=1)
    return Turn(norm, norm - share * norm, across)


def angular_update(before: Tensor, after: Tensor) -> Tensor:
    """Return the angle between a block before and after a step, `∠(w_t, w_(t+1))`, in radians.

    Needs no formula of the learning rate, and means the same for every optimizer: where the function does
    not depend on the length of w, it is all that a step does (Wan et al. 2021; Kosson et al. 2024).

    Args:
        before: the weights of one block, any shape and size; computed in their own type, at least float32,
            divided by the largest of both, so that no square overflows or vanishes; each by its own where
            one is so much longer that the other would vanish.
        after: the same a step later.

    Returns:
        A number, NaN if either is zero. Accurate to rounding for small angles too; where a step also changes
        the length by a share s, the angle has an absolute error of about a rounding of s.

    Raises:
        ValueError: if the shapes differ or the tensors are empty.
        TypeError: if they are not floating-point tensors.

    >>> w = torch.tensor([1.0, 0.0])
    >>> f"{angular_update(w, torch.tensor([1.0, 1e-6])):.6e}"
    '1.000000e-06'
    >>> float(angular_update(w, 2 * w))
    0.0
    """
    for value in (before, after):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise TypeError(f"weights must be floating-point tensors; got {getattr(value, 'dtype', value)}.")
    if before.shape != after.shape or not before.numel():
        raise ValueError(
            f"weights before and after must have one shape, not empty; got {tuple(before.shape)} and "
            f"{tuple(after.shape)}."
        )
    one, other = (wide(v.detach()).reshape(1, -1) for v in (before, after))
    exponents = torch.stack([torch.frexp(v.abs().amax()).exponent for v in (one, other)])
    far = (exponents[0] - exponents[1]).abs() > _FAR
    one, other = map(_divided, (one, other), torch.where(far, exponents, exponents.amax()))
    return turn(other - one, other).angle[0]


def _divided(value: Tensor, exponent: Tensor) -> Tensor:
    """Divide by a power of two: no digit changes. Infinite or zero weights stay as they are."""
    return torch.ldexp(torch.ldexp(value, -(exponent // 2)), exponent // 2 - exponent)


def wide(value: Tensor) -> Tensor:
    """Return a tensor in float32 if its type is narrower."""
    return value.float() if value.dtype.itemsize < 4 else value


def products(one: Tensor, other: Tensor) -> Tensor:
    """Return the inner products of vectors (parts, coordinates)."""
    return torch.dot(one[0], other[0])[None] if len(one) == 1 else torch.linalg.vecdot(one, other)
