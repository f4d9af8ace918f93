import numpy as np
import pytest
import torch

from normgeom.points import load_point


def test_digits_are_real_and_the_weight_is_trained():
    point = load_point("digits")
    assert point.weight.shape == (32, 64)
    assert point.data.shape == (1797, 64)
    assert int((point.data.std(0) == 0).sum()) == 3
    right = float(point.source.split("passes, ")[1].split(" %")[0])
    assert right > 90


def test_npz(tmp_path):
    np.savez(tmp_path / "mine.npz", weight=np.eye(3, 2, dtype=np.float32), data=np.ones((4, 2), dtype=int))
    point = load_point(str(tmp_path / "mine.npz"))
    assert (point.weight.dtype, point.data.dtype) == (torch.float64, torch.float64)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"weight": np.eye(3)}, "it lacks data and has weight"),
        ({"weight": np.eye(3), "data": np.ones((4, 2))}, "must have the same number of inputs"),
        ({"weight": np.array([["a", "b"]]), "data": np.ones((4, 2))}, "must be numbers"),
        ({"weight": np.array([{}], dtype=object), "data": np.eye(3)}, "must be an .npz of plain arrays"),
        ({"weight": np.eye(3) * 1j, "data": np.eye(3)}, "must be real; got complex numbers"),
    ],
)
def test_bad_npz(arrays, message, tmp_path, unchecked):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load_point(str(tmp_path / "bad.npz"))


def test_one_array_is_not_a_point(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((5, 3)))
    said = r"must be an \.npz with arrays weight \(units, inputs\) and data .* one array of shape \(5, 3\)"
    with pytest.raises(ValueError, match=said):
        load_point(str(tmp_path / "x.npy"))


def test_no_file_and_no_npz(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*none.npz; data must be `digits` or an .npz"):
        load_point(str(tmp_path / "none.npz"))
    (tmp_path / "text.npz").write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(ValueError, match=r"must be an \.npz"):
        load_point(str(tmp_path / "text.npz"))
