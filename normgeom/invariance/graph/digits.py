"""Arithmetic of 50 digits: what each elementary function is on numbers."""

import contextlib
import decimal
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

DIGITS = 50
LARGEST_EXPONENT = 10**9


class NoValue(ArithmeticError):
    """A function has no real value at a point: a division by 0, a root of a negative number."""


@contextlib.contextmanager
def precision() -> Iterator[None]:
    """Compute with decimals of 50 digits within, and as before after it."""
    with decimal.localcontext() as context:
        context.prec = DIGITS
        context.Emax, context.Emin = LARGEST_EXPONENT, -LARGEST_EXPONENT
        yield


def simplest(value: float) -> Fraction:
    """Return the simplest fraction that rounds to a float: a constant of code is meant as it is written.

    >>> simplest(0.1), simplest(1 / 3), simplest(1e-5)
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 100000))
    """
    near = Fraction(value).limit_denominator(10**6)
    return near if float(near) == value else Fraction(repr(float(value)))


class Digits:
    """Real numbers of 50 digits: decimals, and mpmath in a context of its own for what they lack."""

    def __init__(self) -> None:
        self.context = mpmath.MPContext()
        self.context.dps = DIGITS + 5
        special = ("tanh", "sin", "cos", "erf", "atan", "expm1", "log1p")
        self.functions: dict[str, Callable[..., Any]] = {name: self._special(name) for name in special} | {
            "sqrt": Decimal.sqrt,
            "exp": Decimal.exp,
            "log": Decimal.ln,
            "log2": lambda x: x.ln() / Decimal(2).ln(),
            "abs": abs,
            "sign": lambda x: Decimal((x > 0) - (x < 0)),
            "floor": lambda x: x.to_integral_value(decimal.ROUND_FLOOR),
            "ceil": lambda x: x.to_integral_value(decimal.ROUND_CEILING),
        }

    def number(self, value: Any) -> Any:
        """Return a number: a fraction, an integer or a float with exactly its value."""
        if isinstance(value, Fraction):
            return Decimal(value.numerator) / Decimal(value.denominator)
        if value != value:
            raise NoValue("not a number")
        return Decimal(value)

    def constant(self, value: Any) -> Any:
        """Return a constant that stands in the code."""
        finite = isinstance(value, float) and abs(value) != float("inf")
        return self.number(simplest(value) if finite else value)

    def function(self, name: str, x: Any) -> Any:
        """Return an elementary function of one number."""
        return self._real(self.functions[name], x)

    def power(self, x: Any, exponent: Any) -> Any:
        """Return `x ** exponent`, real or no value."""
        if 2 * exponent == 1:
            return self._real(Decimal.sqrt, x)
        return self._real(lambda base: base**exponent, x)

    def divide(self, x: Any, y: Any) -> Any:
        """Return `x / y`."""
        if y == 0:
            raise NoValue("division by 0")
        return x / y

    def larger(self, x: Any, y: Any) -> Any:
        """Return the larger of two numbers."""
        return x if x >= y else y

    def smaller(self, x: Any, y: Any) -> Any:
        """Return the smaller of two numbers."""
        return x if x <= y else y

    def compare(self, name: str, x: Any, y: Any) -> Any:
        """Return whether `x < y`, `x == y` and so on."""
        return {"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}[name]

    def choose(self, condition: Any, x: Any, y: Any) -> Any:
        """Return x where a condition holds, else y."""
        return x if condition else y

    def _special(self, name: str) -> Callable[[Any], Any]:
        """A function of mpmath, on decimals."""
        c = self.context
        return lambda x: self.decimal(getattr(c, name)(c.mpf(str(x))))

    def decimal(self, value: Any) -> Decimal:
        """Return a number of mpmath as a decimal."""
        return Decimal(self.context.nstr(value, DIGITS + 3))

    def _real(self, function: Callable[[Any], Any], x: Any) -> Any:
        try:
            value = function(x)
        except (ValueError, ArithmeticError) as why:
            raise NoValue(f"a root, power or logarithm of {float(x):.3g}") from why
        if x.is_finite() and not value.is_finite():
            raise NoValue(f"a logarithm or power of {float(x):.3g}")
        return value


def objects(values: Any) -> np.ndarray:
    """Return an array of objects, whatever numpy made of it (a sum of objects is a bare object)."""
    if isinstance(values, np.ndarray) and values.dtype == object:
        return values
    array = np.empty(np.shape(values), dtype=object)
    array[...] = values
    return array
