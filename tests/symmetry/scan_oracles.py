"""Slow and obvious: the whole Jacobian along every tensor, and a transform of a copy of the model."""

import copy

import numpy as np
import torch


def outputs(model, values, batch):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return torch.func.functional_call(model, values, (batch,)).flatten()


def radial_null_space(model, batch, points=2):
    """An orthonormal basis of the k with `sum_p k_p J theta_p = 0` at several random points."""
    rows, generator = [], torch.Generator().manual_seed(1)
    for _ in range(points):
        values = {
            name: (p * (1 + 0.2 * torch.rand(p.shape, generator=generator, dtype=p.dtype))).detach()
            for name, p in model.named_parameters()
        }
        columns = []
        for name in values:

            def moved(t, name=name, values=values):
                return outputs(model, {**values, name: t * values[name]}, batch)

            one = torch.ones((), dtype=torch.float64)
            columns.append(torch.autograd.functional.jvp(moved, one, one)[1])
        rows.append(torch.stack(columns, 1))
    jacobian = torch.cat(rows).numpy()
    lengths = np.linalg.norm(jacobian, axis=0)
    lengths[lengths < 1e-12 * lengths.max()] = lengths.max()
    _, values, directions = np.linalg.svd(jacobian / lengths, full_matrices=False)
    null = directions[values < 1e-9 * values[0]].T / lengths[:, None]
    return np.linalg.qr(null)[0]


def exponent_matrix(found):
    """Single and joint exponents of a map, a row for each symmetry."""
    names = [one.block for one in found.blocks]
    symmetries = [{one.block: 1} for one in found.single] + [one.exponents for one in found.joint]
    return np.array([[one.get(name, 0) for name in names] for one in symmetries], dtype=float)


def scaled_deviation(model, batch, exponents, factor):
    """How much the outputs of a copy change when its tensors are multiplied by powers of a factor."""
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for name, power in exponents.items():
            moved.get_parameter(name).mul_(factor**power)
        before, after = model(batch), moved(batch)
    return float((before - after).abs().max() / before.abs().max())
