"""The angular update is right for angles of any size."""

import math

import mpmath
import pytest
import torch

from normgeom import angular_update


def turned(angle, size, dtype, generator):
    """A vector and the same turned by about an angle."""
    w, side = (torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(2))
    side = side - (side @ w) / (w @ w) * w
    side = side * w.norm() / side.norm()
    return w.to(dtype), (math.cos(angle) * w + math.sin(angle) * side).to(dtype)


def exact(before, after):
    """The angle between two vectors of floating-point numbers, to 50 digits."""
    with mpmath.workdps(50):
        u, v = (mpmath.matrix([mpmath.mpf(float(x)) for x in t.flatten()]) for t in (before, after))
        dot = sum(a * b for a, b in zip(u, v, strict=True))
        return float(mpmath.acos(dot / mpmath.sqrt(sum(a * a for a in u) * sum(b * b for b in v))))


@pytest.mark.parametrize("angle", [1e-6, 1e-5, 1e-3, 0.5, 2.0, 3.1])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 2e-6), (torch.float64, 1e-13)])
def test_it_equals_the_angle_to_50_digits(angle, dtype, rtol, generator):
    before, after = turned(angle, 1000, dtype, generator)
    assert float(angular_update(before, after)) == pytest.approx(exact(before, after), rel=rtol)


def test_an_arc_cosine_in_float32_does_not_see_it(generator):
    before, after = turned(1e-5, 1000, torch.float32, generator)
    cosine = (before @ after / (before.norm() * after.norm())).clamp(max=1)
    assert abs(float(cosine.acos()) / exact(before, after) - 1) > 0.5


def test_decay_beside_a_turn_of_a_millionth_is_not_in_it(generator):
    w, other = turned(1e-6, 1000, torch.float64, generator)
    before, after = w.float(), (0.9 * other).float()
    assert float(angular_update(before, after)) == pytest.approx(exact(before, after), rel=1e-4)


def test_no_turn_and_half_a_turn():
    w = torch.tensor([1.0, -2.0])
    assert float(angular_update(w, 3 * w)) < 1e-7
    assert float(angular_update(w, w)) == 0.0
    assert float(angular_update(w, -w)) == pytest.approx(math.pi)


@pytest.mark.parametrize(("before", "after"), [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_a_zero_block_has_no_angle(before, after):
    assert math.isnan(angular_update(torch.full((3,), before), torch.full((3,), after)))


def test_bfloat16_weights_are_compared_in_float32():
    before, after = torch.tensor([1.0, 0.0]).bfloat16(), torch.tensor([1.0, 2**-7]).bfloat16()
    assert float(angular_update(before, after)) == pytest.approx(math.atan(2**-7), rel=1e-6)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"one shape, not empty; got \(2,\) and \(3,\)"):
        angular_update(torch.zeros(2), torch.zeros(3))
    with pytest.raises(TypeError, match=r"floating-point tensors; got torch.int64"):
        angular_update(torch.tensor([1]), torch.tensor([1]))


@pytest.mark.parametrize("size", [1e-37, 1e-30, 1e-22, 1.0, 1e20, 1e37])
def test_very_long_and_very_short_weights(size):
    before, after = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1e-3])
    found = angular_update(before * size, after * size)
    assert float(found) == pytest.approx(1e-3, rel=1e-4)


@pytest.mark.parametrize(("one", "other"), [(1e30, 1e-30), (1e-30, 1e30), (1e-25, 1e-3), (1e-37, 1e37)])
def test_weights_of_very_different_lengths(one, other):
    before, after = torch.tensor([one, 0.0]), torch.tensor([other, other])
    assert float(angular_update(before, after)) == pytest.approx(math.pi / 4)
