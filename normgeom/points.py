"""Real weights and data to measure at, instead of Gaussian draws, which flatter a check."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from normgeom.norms import check_shapes


@dataclass(frozen=True, eq=False)
class PointOfData:
    """A weight (units, inputs) and data (cases, inputs), and where they are from."""

    weight: torch.Tensor
    data: torch.Tensor
    source: str


def digit_images() -> tuple[torch.Tensor, torch.Tensor]:
    """Return scikit-learn's bundled digits: images (1797, 64) between 0 and 1 in float64, and labels."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return torch.from_numpy(images / 16), torch.from_numpy(labels)


def digits(*, units: int = 32, seed: int = 0) -> PointOfData:
    """Return scikit-learn's bundled digits and the first weight of a small network trained on them.

    Data: 1797 cases of 8 x 8 pixels, divided by 16. Weight: the hidden layer of scikit-learn's
    `MLPClassifier` (tanh, Adam, 40 passes), which has left its initial values behind.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    images, labels = (part.numpy() for part in digit_images())
    network = MLPClassifier((units,), activation="tanh", max_iter=40, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(images, labels)
    source = (
        f"scikit-learn's digits ({len(images)} cases, 64 pixels over 16); weight: hidden layer of {units} "
        f"tanh units after 40 passes, {100 * network.score(images, labels):.1f} % of the cases right"
    )
    return PointOfData(torch.tensor(network.coefs_[0].T.copy()), torch.from_numpy(images), source)


def from_npz(path: str | Path) -> PointOfData:
    """Return the arrays `weight` and `data` of an .npz file, as float64.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if an array is missing, is not numeric, or the shapes do not fit.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"no file {file}; data must be `digits` or an .npz with arrays weight and data."
        )
    found = _arrays_of(file)
    missing = [name for name in ("weight", "data") if name not in found]
    if missing:
        raise ValueError(
            f"{file} must hold arrays weight (units, inputs) and data (cases, inputs); "
            f"it lacks {' and '.join(missing)} and has {', '.join(found) or 'nothing'}."
        )
    if any(np.iscomplexobj(found[name]) for name in ("weight", "data")):
        raise ValueError(f"weight and data in {file} must be real; got complex numbers.")
    try:
        weight, data = (torch.tensor(found[name].astype(np.float64)) for name in ("weight", "data"))
    except (TypeError, ValueError) as why:
        raise ValueError(f"weight and data in {file} must be numbers ({why}).") from why
    check_shapes(weight, data)
    return PointOfData(weight, data, f"arrays weight and data of {file.name}")


def _arrays_of(file: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name."""
    try:
        with file.open("rb") as opened:
            loaded = np.load(opened, allow_pickle=False)
            if not isinstance(loaded, np.ndarray):
                return {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, AttributeError, EOFError, zipfile.BadZipFile) as why:
        raise ValueError(f"{file} must be an .npz of plain arrays; it could not be read.") from why
    raise ValueError(
        f"{file} must be an .npz with arrays weight (units, inputs) and data (cases, inputs); got one array "
        f"of shape {loaded.shape}. Save both: np.savez('point.npz', weight=weight, data=data)."
    )


def load_point(source: str, *, seed: int = 0) -> PointOfData:
    """Return `digits`, trained from this seed, or the point in an .npz file."""
    return digits(seed=seed) if source == "digits" else from_npz(source)
