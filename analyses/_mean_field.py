"""How fast mean-field theory has the gradient of a wide random RNN grow, with layer norm and without."""

import math

import numpy as np

POINTS = np.linspace(-9, 9, 18001)
WEIGHTS = np.exp(-(POINTS**2) / 2) / np.exp(-(POINTS**2) / 2).sum()
"""A grid fine enough for summed inputs of any width: sech^4 of them is a spike of width 1 over theirs."""


def rnn_rate(scale: float, hidden: int) -> float:
    """Return powers of ten in 100 steps for `h = tanh(W_h h + W_x x + b)` with one-hot inputs.

    Summed inputs are normal with variance `s^2 q + v`, weights fresh at every step: `q = E tanh^2(a)`, and
    the squared norm of the gradient grows by `s^2 E sech^4(a)` a step. `s^2 = scale^2 / 3` is H times the
    variance of an entry of W_h, `v = 1/H` that of a column of W_x and two biases.

    Source: Poole et al. 2016 (arXiv:1606.05340), eq. 3 and 5; Schoenholz et al. 2017 (arXiv:1611.01232).
    """
    squared, q = scale**2 / 3, 1.0
    for _ in range(1000):
        summed = math.sqrt(squared * q + 1 / hidden) * POINTS
        before, q = q, float(WEIGHTS @ np.tanh(summed) ** 2)
        if abs(q - before) < 1e-12:
            break
    return rate(squared * _sech4(summed))


def layer_norm_rnn_rate(scale: float, hidden: int, gain: float) -> float:
    """Return the same for `h = tanh(g LN(W_h h + W_x x))`.

    Normalized summed inputs are standard normal, `q = E tanh^2(g u)`. The Jacobian of the norm is a
    projection of rank H - 2 over sigma, `sigma^2 = s^2 q + v`, v = 1/(3H): the growth is
    `(1 - 2/H) g^2 s^2 / sigma^2 E sech^4(g u)`. For inputs that are small beside W_h h, this does not depend
    on the scale of W_h.

    >>> large, larger = (layer_norm_rnn_rate(scale, 10**6, 1.0) for scale in (1.0, 100.0))
    >>> round(large, 2), round(larger, 2)
    (3.55, 3.55)
    """
    squared = scale**2 / 3
    sigma_squared = squared * float(WEIGHTS @ np.tanh(gain * POINTS) ** 2) + 1 / (3 * hidden)
    return rate((1 - 2 / hidden) * gain**2 * squared / sigma_squared * _sech4(gain * POINTS))


def rate(growth: float) -> float:
    """Return powers of ten of the norm in 100 steps, of which each multiplies its square by a growth."""
    return 50 * math.log10(growth)


def _sech4(summed: np.ndarray) -> float:
    """E sech^4 of normal summed inputs; that of very large ones is 0."""
    return float(WEIGHTS @ np.cosh(np.clip(summed, -80, 80)) ** -4.0)
