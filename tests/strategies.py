"""Hypothesis strategies: readable dyadic matrices, and elements of each action."""

import torch
from hypothesis import strategies as st

UNITS, INPUTS, CASES = 4, 3, 5


def dyadics(low=-4, high=4):
    """Multiples of 1/8: exact in every floating-point type, and no subnormals."""
    return st.integers(low * 8, high * 8).map(lambda k: k / 8)


def matrices(rows, columns):
    flat = st.lists(dyadics(), min_size=rows * columns, max_size=rows * columns)
    return flat.map(lambda v: torch.tensor(v, dtype=torch.float64).reshape(rows, columns))


def scales():
    """Positive scales away from 1, none so large that eps or rounding would be seen."""
    return st.sampled_from([0.25, 0.375, 0.625, 1.5, 2.0, 2.5, 3.0, 4.0])


def elements(action):
    """Elements of an action for weights (UNITS, INPUTS) and data (CASES, INPUTS)."""
    size = {"units": UNITS, "inputs": INPUTS, "cases": CASES, None: None}[action.axis]
    number = dyadics() if action.sign is None else scales().map(lambda s: s * action.sign)
    if size is None:
        return number.map(action)
    return st.lists(number, min_size=size, max_size=size).map(
        lambda v: action(torch.tensor(v, dtype=torch.float64))
    )
