"""Other packages for the same quantities, as references of `bench_fisher`; each is skipped if absent.

BackPACK (1.7), nngeometry (0.4), curvlinops (3.0, with einops, einconv, unfoldNd, tqdm and linear_operator),
ASDL (0.1.5) and posteriors (0.1.3, with optree, tensordict, torchopt, pyvers and graphviz) install with
`pip install --no-deps --target DIR`, and `PYTHONPATH=DIR` puts them beside the project without making them
part of it. What a package cannot do is left
out: BackPACK has no second-order rule for layer norm, so it has no matrix for case c.
"""

import copy
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import scipy.sparse.linalg
import torch
from torch import nn

Run = Callable[[], torch.Tensor]
NAMES = ("backpack", "nngeometry", "curvlinops", "asdl", "posteriors")


def available() -> dict[str, Any]:
    """Return the packages that import, by name."""
    found = {}
    for name in NAMES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = importlib.import_module(name)
        except ImportError:
            continue
    return found


def missing() -> list[str]:
    """Return the packages that do not import."""
    return [name for name in NAMES if name not in available()]


def full(net: nn.Module, x: torch.Tensor) -> dict[str, Run]:
    """Return the ways to the full Fisher matrix, tensor-major (cases a and c)."""
    found, runs = available(), {}
    if "curvlinops" in found:
        identity = torch.eye(_size(net))
        operator = _operator(net, x)
        runs["curvlinops, times identity"] = lambda: operator @ identity
    if "nngeometry" in found:
        runs["nngeometry, PMatDense"] = _dense_matrix(net, x)
    if "asdl" in found:
        runs["ASDL, exact full Fisher"] = _asdl(net, x)
    if "backpack" in found and all(isinstance(m, nn.Linear | nn.Sequential) for m in net.modules()):
        rows = _backpack_rows(net, x)
        runs["BackPACK, SqrtGGNExact"] = lambda: _gram(rows().flatten(0, 1))
    return runs


def per_case(net: nn.Module, x: torch.Tensor) -> dict[str, Run]:
    """Return the ways to one Fisher matrix a case, tensor-major (case b)."""
    found = available()
    runs = {"posteriors, ggn": _posteriors(net, x)} if "posteriors" in found else {}
    if "backpack" not in found:
        return runs
    rows = _backpack_rows(net, x)

    def matrices() -> torch.Tensor:
        by_case = rows().transpose(0, 1)
        return torch.matmul(by_case.mT, by_case).mul_(len(x))

    return runs | {"BackPACK, SqrtGGNExact": matrices}


def product(net: nn.Module, x: torch.Tensor, vector: torch.Tensor) -> dict[str, Run]:
    """Return the ways to a Fisher-vector product (case d)."""
    found, runs = available(), {}
    if "curvlinops" in found:
        operator = _operator(net, x)
        runs["curvlinops"] = lambda: operator @ vector
    if "backpack" in found:
        ggnvp = importlib.import_module("backpack.hessianfree.ggnvp").ggn_vector_product
        shapes = [p.shape for p in net.parameters()]
        parts = [
            v.view(s) for v, s in zip(vector.split([s.numel() for s in shapes]), shapes, strict=True)
        ]  # fmt: skip

        def run() -> torch.Tensor:
            eta = net(x)
            out = ggnvp(nn.functional.cross_entropy(eta, _targets(x)), eta, net, parts)
            return torch.cat([part.flatten() for part in out]).detach()

        runs["BackPACK, ggn_vector_product"] = run
    return runs


def eigenvalues(net: nn.Module, x: torch.Tensor, *, slow: bool) -> dict[str, Run]:
    """Return the ways to the ten largest eigenvalues (case e); eigsh (10 s and more) only if asked."""
    found, runs = available(), {}
    if "curvlinops" in found and slow:

        def iterative() -> torch.Tensor:
            operator = _operator(net, x).to_scipy()
            values = scipy.sparse.linalg.eigsh(operator, 10, return_eigenvectors=False, tol=1e-4)
            return torch.from_numpy(values[::-1].copy())

        runs["eigsh on curvlinops, tol 1e-4"] = iterative
    if "nngeometry" in found:
        runs["nngeometry, Gram matrix"] = _gram_eigenvalues(net, x)
    return runs


def _targets(x: torch.Tensor) -> torch.Tensor:
    """Labels, which the curvature of the cross entropy does not depend on."""
    return torch.zeros(len(x), dtype=torch.long)


def _size(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def _operator(net: nn.Module, x: torch.Tensor) -> Any:
    curvlinops = available()["curvlinops"]
    return curvlinops.GGNLinearOperator(
        net, nn.CrossEntropyLoss(), list(net.parameters()), [(x, _targets(x))], check_deterministic=False
    )


def _backpack_rows(net: nn.Module, x: torch.Tensor) -> Run:
    """The rows of a root of the Fisher matrix: (outputs, cases, parameters), over sqrt(cases)."""
    backpack, rule = available()["backpack"], importlib.import_module("backpack.extensions").SqrtGGNExact
    # BackPACK hooks the modules it extends.
    own, loss = backpack.extend(copy.deepcopy(net)), backpack.extend(nn.CrossEntropyLoss())

    def rows() -> torch.Tensor:
        value = loss(own(x), _targets(x))
        with backpack.backpack(rule()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch notes that the inputs need no gradient
            value.backward()
        return torch.cat([p.sqrt_ggn_exact.flatten(2) for p in own.parameters()], 2)

    return rows


def _gram(rows: torch.Tensor) -> torch.Tensor:
    return rows.T @ rows


def _loader(x: torch.Tensor) -> Any:
    data = torch.utils.data.TensorDataset(x, _targets(x))
    return torch.utils.data.DataLoader(data, batch_size=len(x))


def _dense_matrix(net: nn.Module, x: torch.Tensor) -> Run:
    metrics, objects = (importlib.import_module(f"nngeometry.{n}") for n in ("metrics", "object"))
    loader = _loader(x)
    return lambda: metrics.FIM(net, loader, objects.PMatDense).to_torch()


def _asdl(net: nn.Module, x: torch.Tensor) -> Run:
    asdl, own = available()["asdl"], nn.Sequential(copy.deepcopy(net))
    config = asdl.FisherConfig("fisher_exact", [asdl.SHAPE_FULL], loss_type="cross_entropy", data_size=len(x))
    maker = asdl.get_fisher_maker(own, config)

    def run() -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its hooks are of the old kind
            outputs = maker.setup_model_call(own, x)
            maker.setup_loss_call(nn.functional.cross_entropy, outputs, _targets(x))
            maker.forward_and_backward()
        matrix: Any = own.fisher
        return torch.as_tensor(matrix.data)

    return run


def _posteriors(net: nn.Module, x: torch.Tensor) -> Run:
    names, params = zip(*net.named_parameters(), strict=True)  # a dict would be flattened by sorted names
    ggn = available()["posteriors"].ggn

    def one(row: torch.Tensor) -> torch.Tensor:
        call = lambda p: torch.func.functional_call(net, dict(zip(names, p, strict=True)), (row[None],))  # noqa: E731
        return ggn(call, lambda eta: nn.functional.cross_entropy(eta, _targets(eta)))(params)

    return lambda: torch.func.vmap(one)(x).detach()


def _gram_eigenvalues(net: nn.Module, x: torch.Tensor) -> Run:
    """The Gram matrix of the rows of `S^T J`, with S a root of the covariance of the labels."""
    gram, loader = importlib.import_module("nngeometry.gram").GramMatrix, _loader(x)

    def whitened(inputs: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        eta = net(inputs)
        p = eta.detach().softmax(1)
        # eta S with S = diag(sqrt p) - p sqrt(p)^T, one output for each column of S.
        return (eta - (eta * p).sum(1, keepdim=True)) * p.sqrt()

    def run() -> torch.Tensor:
        matrix = gram(net, loader, function=whitened).to_torch().detach()
        side = matrix.shape[0] * matrix.shape[1]
        return torch.linalg.eigvalsh(matrix.reshape(side, side)).flip(0)[:10] / len(x)

    return run
