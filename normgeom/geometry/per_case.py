"""The exact Fisher matrix of every case of a normalized GLM: held as factors, written out on demand.

Row (j, d) of case n is the feature `phi_d` times one vector over all parameters, the same for every d:

    F_n[(w_j, d), :] = (T_j phi)_d * [ (M^T S M)_jk T_k phi,  (M^T S)_jk,  (M^T S)_jk z_k ]_k
    F_n[ b_j,     :] =               [ (M^T S)_kj  T_k phi,    S_jk,        S_jk z_k       ]_k
    F_n[ g_j,     :] = z_j * F_n[b_j, :]

so a matrix is written in one pass, one product an entry. Notation: `jacobian.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from normgeom.geometry.closed_form import summed_over_cases
from normgeom.geometry.glm import NAMES, NormalizedGLM, Params, check_problem
from normgeom.geometry.jacobian import GLMJacobian, glm_jacobian, mix
from normgeom.geometry.matrix import FisherMatrix, ParameterOrder, WrittenOut
from normgeom.geometry.memory import fresh

_SCRATCH = 2**18


@dataclass(frozen=True, eq=False)
class PerCaseFisher(WrittenOut):
    """One Fisher matrix a case, `F_n = J_n^T S_n J_n`, held as its factors.

    `len(F)` is the number of cases, `F[n]` the matrix of one, `F.materialize()` all of them, neuron-major.

    Attributes:
        jacobian: the factors of J_n.
        weighting: S_n, the Fisher information of the outputs, (cases, units, units).
        order: the labels of the parameters.
    """

    jacobian: GLMJacobian
    weighting: Tensor
    order: ParameterOrder

    def __len__(self) -> int:
        """The number of cases."""
        return len(self.weighting)

    def __getitem__(self, case: int) -> FisherMatrix:
        """Return the Fisher matrix of one case."""
        if not -len(self) <= case < len(self):
            raise IndexError(f"case must be below {len(self)}; got {case}.")
        one = range(len(self))[case]
        return FisherMatrix(self._write(range(one, one + 1), None)[0], self.order, "exact", "none")

    @property
    def matrix(self) -> Tensor:
        """All matrices written out, (cases, parameters, parameters)."""
        return self.materialize().matrix

    @property
    def device(self) -> torch.device:
        """Where the factors lie."""
        return self.weighting.device

    @property
    def nbytes(self) -> int:
        """The memory that the factors take."""
        jacobian, projection = self.jacobian, self.jacobian.projection
        held = [self.weighting, jacobian.mixing, jacobian.features, jacobian.z, jacobian.outputs]
        held += [projection.left, projection.right] if projection else []
        return sum(tensor.nbytes for tensor in held if tensor is not None)

    def __iter__(self) -> Iterator[FisherMatrix]:
        """Iterate over the matrices of the cases, one at a time."""
        return (self[n] for n in range(len(self)))

    def mean(self) -> FisherMatrix:
        """Return the mean over cases."""
        return self._reduced(1 / len(self), "mean")

    def sum(self) -> FisherMatrix:
        """Return the sum over cases."""
        return self._reduced(1.0, "sum")

    def _reduced(self, scale: float, reduction: str) -> FisherMatrix:
        matrix = summed_over_cases(self.jacobian, self.weighting * scale)
        return FisherMatrix(matrix, self.order, "exact", reduction)

    def kronecker(self) -> tuple[Tensor, Tensor]:
        """Return (A, phi) with `F_n[w_j, w_k] = A_n,jk T_j phi_n phi_n^T T_k^T`, T mostly the identity.

        A has shape (cases, units, units), phi (cases, inputs). The weight block of case n is the Kronecker
        product of A_n and `phi_n phi_n^T`; weight norm and batch norm have their projections around it.
        """
        mixing = self.jacobian.mixing
        return mix(mixing, mix(mixing, self.weighting).mT), self.jacobian.features

    def product(self, vectors: Tensor) -> Tensor:
        """Return `F_n v_n` for vectors (cases or 1, parameters) in `order`, without a matrix."""
        units = self.weighting.shape[-1]
        jacobian, parts = self.jacobian, vectors.reshape(len(vectors), units, -1)
        inputs = jacobian.features.shape[1]
        outputs = jacobian.push(*self._split(parts, inputs))
        pulled = jacobian.pull((self.weighting @ outputs[..., None])[..., 0])
        return torch.cat(pulled, -1).reshape(len(self), -1)

    def materialize(self, *, out: Tensor | None = None) -> FisherMatrix:
        """Return all matrices, of shape (cases, parameters, parameters).

        Args:
            out: a contiguous tensor to write into; writing to memory in use is several times faster than to
                fresh memory, which the system first has to clear.

        Raises:
            ValueError: if `out` has another shape, type or layout.
        """
        return FisherMatrix(self._write(range(len(self)), out), self.order, "exact", "none")

    def _write(self, cases: range, out: Tensor | None) -> Tensor:
        units, size = self.weighting.shape[-1], len(self.order)
        out = _checked(out, (len(cases), size, size), self.weighting)
        rows = out.view(len(cases), units, size // units, size)
        # Few cases at a time, so that what the rows are multiplied from stays in the cache.
        chunk = max(1, _SCRATCH // (units * size))
        for start in range(0, len(cases), chunk):
            some = cases[start : start + chunk]
            self._write_rows(slice(some.start, some.stop), rows[start : start + chunk])
        return out

    def _write_rows(self, some: slice, rows: Tensor) -> None:
        jacobian, weighting = self.jacobian.of_cases(some), self.weighting[some]
        features, z, inputs = jacobian.unit_features(), jacobian.z, jacobian.features.shape[1]
        mixed = mix(jacobian.mixing, weighting)
        weight_row = _row(mix(jacobian.mixing, mixed.mT), mixed, features, z)
        bias_row = weight_row if jacobian.mixing is None else _row(mixed.mT, weighting, features, z)
        torch.mul(features[..., None], weight_row, out=rows[:, :, :inputs])
        rows[:, :, inputs] = bias_row[:, :, 0]
        if z is not None:
            rows[:, :, inputs + 1] = z[..., None] * bias_row[:, :, 0]

    @staticmethod
    def _split(parts: Tensor, inputs: int) -> tuple[Tensor, Tensor, Tensor | None]:
        gain = parts[..., inputs + 1] if parts.shape[-1] > inputs + 1 else None
        return parts[..., :inputs], parts[..., inputs], gain


@torch.no_grad()
def closed_form_per_case(model: NormalizedGLM, params: Params, data: Tensor) -> PerCaseFisher:
    """Return the exact Fisher matrix of every case of a normalized GLM, as factors.

    Their mean is `closed_form_fisher(model, params, data)`. For batch norm, J_n includes the dependence of
    the statistics on the weights through all cases. Errors are those of `closed_form_fisher`.

    >>> from normgeom.geometry.families import Gaussian
    >>> from normgeom.norms import NoNorm
    >>> glm = NormalizedGLM(NoNorm(), Gaussian())
    >>> params = {"weight": torch.zeros(1, 1), "bias": torch.zeros(1)}
    >>> closed_form_per_case(glm, params, torch.tensor([[1.0], [3.0]]))[1].matrix
    tensor([[9., 3.],
            [3., 1.]])
    """
    check_problem(model, params, data)
    jacobian = glm_jacobian(model, params, data)
    order = ParameterOrder.of({name: params[name] for name in NAMES if name in params}, kind="neuron")
    return PerCaseFisher(jacobian, model.family.fisher(jacobian.outputs), order)


def _row(weight: Tensor, bias: Tensor, features: Tensor, z: Tensor | None) -> Tensor:
    """The vector over all parameters that a row is a multiple of, (cases, units, 1, parameters)."""
    parts = [weight[..., None] * features[:, None], bias[..., None]]
    if z is not None:
        parts.append((bias * z[:, None, :])[..., None])
    return torch.cat(parts, -1).flatten(2)[:, :, None]


def _checked(out: Tensor | None, shape: tuple[int, int, int], like: Tensor) -> Tensor:
    if out is None:
        return fresh(like, *shape)
    if (
        tuple(out.shape) != shape
        or out.dtype != like.dtype
        or not out.is_contiguous()
        or out.device != like.device
    ):
        raise ValueError(
            f"out must be contiguous, {shape}, {like.dtype} on {like.device}; got {tuple(out.shape)}, "
            f"{out.dtype} on {out.device}."
        )
    return out
