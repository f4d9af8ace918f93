import torch

from normgeom.geometry.memory import LARGE, fresh, reordered


def test_fresh_memory_has_the_shape_and_type_asked_for():
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for rows in (3, LARGE // 8):
            out = fresh(torch.ones(1, dtype=dtype), rows, 2)
            assert (tuple(out.shape), out.dtype) == ((rows, 2), dtype)


def test_reordering_rows_and_columns():
    matrix, order = torch.arange(32.0).reshape(2, 4, 4), torch.tensor([2, 0, 3, 1])
    expected = matrix[:, order][:, :, order]
    assert torch.equal(reordered(matrix, order), expected)
    assert reordered(matrix.requires_grad_(), order).requires_grad
