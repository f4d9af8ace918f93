"""Arithmetic of free symbols: polynomials over the rationals, and a canonical generator for what is none.

A root, an inverse or a function of a polynomial becomes a generator of its own, the same one wherever the
same polynomial comes up. Factors known to be positive are taken out first (`sqrt(d^2 v) = d sqrt(v)`,
`relu(d p) = d relu(p)`), so that what answers to a scale by a power of it does so visibly.
"""

from fractions import Fraction
from typing import Any

import sympy
from sympy.polys.orderings import lex
from sympy.polys.rings import PolyRing

from normgeom.invariance.graph.digits import NoValue, simplest

ATOMS = 96
POSITIVE = ("sqrt", "exp", "abs", "relu", "sigmoid")


class TooMany(Exception):
    """More canonical generators are needed than there are."""


class Symbols:
    """Polynomials in free symbols, positive parameters with their inverses, and canonical generators."""

    def __init__(self, free: list[str], positive: list[str], atoms: int = ATOMS):
        names = [*free, *positive, *(f"1/{p}" for p in positive), *(f"atom_{k}" for k in range(atoms))]
        self.ring = PolyRing(names, sympy.QQ, lex)
        gens, first = self.ring.gens, len(free) + len(positive)
        self.free = gens[: len(free)]
        self.positive = gens[len(free) : first]
        self.first_positive = len(free)
        self._first, self._units, self._unused = len(free), len(positive), list(gens[first + len(positive) :])
        self._atoms: dict[Any, Any] = {}
        self._squares: dict[int, Any] = {}
        self._signs: dict[int, str] = {}

    def number(self, value: Any) -> Any:
        """Return a rational number: a fraction, an integer or a float with exactly its value."""
        if (isinstance(value, float) and value != value) or value in (float("inf"), -float("inf")):
            raise NoValue("not a finite number")
        value = Fraction(value)
        return self.ring.ground_new(sympy.QQ(value.numerator, value.denominator))

    def constant(self, value: Any) -> Any:
        """Return a constant that stands in the code."""
        finite = isinstance(value, float) and abs(value) != float("inf")
        return self.number(simplest(value) if finite else value)

    def divide(self, x: Any, y: Any) -> Any:
        """Return `x / y`."""
        unit, rest = self.split(y)
        if not rest:
            raise NoValue("division by 0")
        inverse = self.inverse(unit)
        return (
            self.reduced(x * inverse) if rest == 1 else self.reduced(x * inverse * self.atom("inverse", rest))
        )

    def power(self, x: Any, exponent: Any) -> Any:
        """Return `x ** exponent`; half-integers are powers of a root."""
        exponent = exponent if isinstance(exponent, int) else Fraction(str(exponent.coeff(1)))
        if 2 * exponent != int(2 * exponent):
            return self.atom(("power", exponent), self.reduced(x))
        base, times = (x, int(exponent)) if exponent == int(exponent) else (self.root(x), int(2 * exponent))
        return self.reduced(base**times) if times >= 0 else self.divide(self.number(1), base**-times)

    def function(self, name: str, x: Any) -> Any:
        """Return a function of one value: a root, a size, or a generator for a function that stays a name."""
        if name == "sqrt":
            return self.root(x)
        unit, rest = self.split(x)
        if name == "abs":
            if self._never_negative(rest):
                return unit * rest
            return unit * self.atom("abs", rest if rest.LC > 0 else -rest)
        return self.atom(name, rest if name == "sign" else self.reduced(x))

    def larger(self, x: Any, y: Any) -> Any:
        """Return the larger of two values, `y + relu(x - y)`."""
        unit, rest = self.split(x - y)
        if self._never_negative(rest):
            return x
        return y + unit * self.atom("relu", rest)

    def smaller(self, x: Any, y: Any) -> Any:
        """Return the smaller of two values."""
        return -self.larger(-x, -y)

    def compare(self, name: str, x: Any, y: Any) -> Any:
        """Return 1 where `x > y`, `x < y` and so on, else 0."""
        if name in ("eq", "ne"):
            raise NotImplementedError("equality of symbols")
        if name in ("ge", "le"):
            return 1 - self.compare("lt" if name == "ge" else "gt", x, y)
        _, rest = self.split(x - y if name == "gt" else y - x)
        return self.atom("step", rest)

    def choose(self, condition: Any, x: Any, y: Any) -> Any:
        """Return x where a condition is 1, y where it is 0."""
        return condition * x + (1 - condition) * y

    def root(self, x: Any) -> Any:
        """Return the canonical root: even powers of positive parameters come out."""
        unit, rest = self.split(x)
        ((monomial, coefficient),) = unit.terms()
        size = sympy.sqrt(sympy.Rational(coefficient.numerator, coefficient.denominator))
        whole = bool(size.is_rational)
        number = sympy.QQ(int(size.p), int(size.q)) if whole else sympy.QQ(1)
        outside = self.ring.term_new(tuple(e // 2 for e in monomial), number)
        inside = self.ring.term_new(tuple(e % 2 for e in monomial), sympy.QQ(1) if whole else coefficient)
        if inside * rest == 1:
            return outside
        atom = self.atom("sqrt", inside * rest)
        self._squares[self.ring.gens.index(atom)] = inside * rest
        return outside * atom

    def split(self, x: Any) -> tuple[Any, Any]:
        """Return a positive factor, a number times powers of the parameters, and the rest."""
        x = self.reduced(x)
        if not x:
            return self.ring.one, x
        terms = x.terms()
        common = [min(m[k] for m, _ in terms) for k in range(self.ring.ngens)]
        outer = tuple(
            e if self._first <= k < self._first + 2 * self._units else 0 for k, e in enumerate(common)
        )
        size = abs(terms[0][1])
        unit = self.ring.term_new(outer, size)
        rest = self.ring.from_dict(
            {tuple(e - o for e, o in zip(m, outer, strict=True)): c / size for m, c in terms}
        )
        return unit, rest

    def inverse(self, unit: Any) -> Any:
        """Return 1 over a number times powers of the parameters."""
        ((monomial, coefficient),) = unit.terms()
        n, first = self._units, self._first
        swapped = list(monomial)
        swapped[first : first + n], swapped[first + n : first + 2 * n] = (
            monomial[first + n : first + 2 * n], monomial[first : first + n],
        )  # fmt: skip
        return self.ring.term_new(tuple(swapped), 1 / coefficient)

    def reduced(self, x: Any) -> Any:
        """Return the value with `d (1/d) = 1` and `sqrt(p)^2 = p` carried out."""
        n, first = self._units, self._first
        out: dict[tuple[int, ...], Any] = {}
        whole = self.ring.zero
        for monomial, coefficient in x.terms():
            powers = list(monomial)
            for k in range(first, first + n):
                both = min(powers[k], powers[k + n])
                powers[k], powers[k + n] = powers[k] - both, powers[k + n] - both
            squares = [k for k in self._squares if powers[k] > 1]
            if squares:
                factor = self.ring.one
                for k in squares:
                    factor *= self._squares[k] ** (powers[k] // 2)
                    powers[k] %= 2
                whole += self.ring.term_new(tuple(powers), coefficient) * factor
            else:
                key = tuple(powers)
                out[key] = out.get(key, self.ring.domain.zero) + coefficient
        flat = self.ring.from_dict({m: c for m, c in out.items() if c})
        return flat + self.reduced(whole) if whole else flat

    def atom(self, name: Any, argument: Any) -> Any:
        """Return the generator of a function of this polynomial."""
        key = (name, argument)
        if key not in self._atoms:
            if not self._unused:
                raise TooMany(f"more than {ATOMS} roots and functions of symbols")
            self._atoms[key] = self._unused.pop(0)
            self._signs[self.ring.gens.index(self._atoms[key])] = str(name)
        return self._atoms[key]

    def _never_negative(self, rest: Any) -> bool:
        """Whether a value is a positive number times generators that are not negative."""
        return all(
            c > 0 and all(e % 2 == 0 or self._signs.get(k) in POSITIVE for k, e in enumerate(m) if e)
            for m, c in rest.terms()
        )
