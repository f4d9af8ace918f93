"""Shape aliases: the words of the project, with their axes.

A *case* is one training example, a row of `data`; a *unit* is one neuron, a row of `weight`; the *summed
inputs* are `data @ weight.T`. Arrays are torch tensors, or numpy arrays of numbers, of `Fraction` or of
SymPy expressions: code that takes them uses operators only, so a type checker sees them as `Any`.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Shaped

if TYPE_CHECKING:
    Array = Any
else:
    Array = torch.Tensor | np.ndarray

Weight = Shaped[Array, "units inputs"]
Data = Shaped[Array, "cases inputs"]
AnyWeight = Shaped[Array, "units *fan_in"]  # the weight of a convolution has a kernel too
AnyData = Shaped[Array, "cases *features"]
Summed = Shaped[Array, "cases units"]
PerUnit = Shaped[Array, "units"]
Statistic = Shaped[Array, "#cases #units"] | int | float
NumberOrPerUnit = Any  # a number, a SymPy expression, or shape (units,)
