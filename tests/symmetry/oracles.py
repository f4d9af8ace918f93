"""The dimension of the affine symmetries by exact rational arithmetic, written without normgeom."""

import itertools
import random
from fractions import Fraction

from sympy import QQ
from sympy.polys.matrices import DomainMatrix


class Dual:
    """A number and its derivative."""

    def __init__(self, value, slope=0):
        self.value, self.slope = Fraction(value), Fraction(slope)

    def __add__(self, other):
        other = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.value + other.value, self.slope + other.slope)

    def __mul__(self, other):
        other = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)

    def __truediv__(self, other):
        return self * Dual(1 / other.value, -other.slope / other.value**2)

    __radd__, __rmul__ = __add__, __mul__

    def __sub__(self, other):
        return self + other * Dual(-1)


def mean(values):
    return sum(values) * Dual(Fraction(1, len(values)))


def squared(method, weight, data):
    """The squares of normalized summed inputs, which are rational; they have the same symmetries."""
    a = [[sum(w * x for w, x in zip(row, case, strict=True)) for row in weight] for case in data]
    out = []
    for case, unit in itertools.product(range(len(data)), range(len(weight))):
        own = {
            "batch": [row[unit] for row in a],
            "layer": a[case],
            "rms": a[case],
            "weight": weight[unit],
            "none": [Dual(1)],
        }[method]
        centre = mean(own) if method in ("batch", "layer") else Dual(0)
        top = a[case][unit] - centre
        out.append(top * top / mean([(v - centre) * (v - centre) for v in own]))
    return out


def dimension(method, units, inputs, cases):
    """The nullity of `J(w) (A w + b) = 0` at 5 (p + 1) random integer points, exactly."""
    random_numbers, p, rows = random.Random(0), units * inputs, []
    draw = lambda: random_numbers.randint(-9, 9)  # noqa: E731
    while len(rows) < 5 * (p + 1) * units * cases:
        w = [draw() for _ in range(p)]
        data = [[draw() for _ in range(inputs)] for _ in range(cases)]
        try:
            columns = []
            for k in range(p):
                flat = [Dual(v, int(j == k)) for j, v in enumerate(w)]
                weight = [flat[i * inputs : (i + 1) * inputs] for i in range(units)]
                columns.append([z.slope for z in squared(method, weight, data)])
        except ZeroDivisionError:
            continue
        for slopes in zip(*columns, strict=True):
            rows.append([QQ(s.numerator, s.denominator) * v for s in slopes for v in (*w, 1)])
    return p * (p + 1) - DomainMatrix(rows, (len(rows), p * (p + 1)), QQ).rank()
