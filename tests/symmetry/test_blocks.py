"""Blocks lie where they say, and are taken apart and scaled without moving anything else."""

import pytest
import torch
from torch import nn

from normgeom import Block, gates, heads, rows
from normgeom.symmetry import resolve_blocks


def view(module, block):
    (found,) = resolve_blocks(module, [block])
    return found


@pytest.mark.parametrize(
    ("module", "block", "labels", "size"),
    [
        (nn.Linear(3, 4), Block("weight"), ("weight",), 12),
        (nn.Linear(3, 2), rows("weight"), ("weight[0]", "weight[1]"), 3),
        (
            nn.LSTM(3, 2),
            gates("weight_hh_l0", 4),
            tuple(f"weight_hh_l0[{k}:{k + 2}]" for k in (0, 2, 4, 6)),
            4,
        ),
        (nn.Linear(4, 6), heads("weight", 2, axis=1), ("weight[:, 0:2]", "weight[:, 2:4]"), 12),
        (nn.Linear(4, 6), heads("weight", 2, rows=slice(2, 6)), ("weight[2:4]", "weight[4:6]"), 8),
        (nn.ConvTranspose1d(2, 3, 5), rows("weight"), ("weight[:, 0]", "weight[:, 1]", "weight[:, 2]"), 10),
    ],
)
def test_labels_are_index_expressions(module, block, labels, size):
    found = view(module, block)
    assert found.labels == labels
    assert found.size == size
    weight = module.get_parameter(block.parameter)
    for label, part in zip(labels, found.split(weight), strict=True):
        wanted = eval(label, {block.parameter: weight})
        torch.testing.assert_close(part.flatten().sort().values, wanted.flatten().sort().values)


@pytest.mark.parametrize("block", [rows("weight"), Block("weight", slice(1, 3)), heads("weight", 3, axis=1)])
def test_scaling_a_part_moves_that_part_alone(block):
    module = nn.Linear(6, 4)
    found, weight = view(module, block), module.weight.detach()
    factors = torch.ones(found.parts)
    factors[-1] = 2.0
    moved = found.scaled(weight, factors)
    torch.testing.assert_close(found.split(moved), found.split(weight) * factors[:, None, None])
    assert int((moved != weight).sum()) == found.size


def test_scaling_rows_within_parts():
    module = nn.Linear(3, 4)
    found = view(module, gates("weight", 2))
    moved = found.scaled(module.weight, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    torch.testing.assert_close(moved, module.weight * torch.tensor([[1.0], [2.0], [3.0], [4.0]]))


def test_a_number_is_a_block_too():
    module = nn.ParameterDict({"scale": nn.Parameter(torch.tensor(3.0))})
    found = view(module, Block("scale"))
    assert (found.labels, found.size) == (("scale",), 1)
    assert float(found.scaled(module["scale"].detach(), torch.tensor([2.0]))) == 6.0


def test_the_axis_of_a_parametrized_transposed_convolution():
    module = nn.utils.parametrizations.weight_norm(nn.ConvTranspose1d(2, 3, 5), dim=1)
    net = nn.Sequential(module)
    assert len(view(net, rows("0.parametrizations.weight.original1")).labels) == 3
    assert len(view(module, rows("parametrizations.weight.original1")).labels) == 3
    assert len(view(net, rows("0.bias")).labels) == 3


def test_default_blocks_are_the_trainable_tensors():
    module = nn.Linear(2, 2)
    module.bias.requires_grad_(False)
    assert [found.labels for found in resolve_blocks(module, None)] == [("weight",)]


WRONG = {
    "name": (lambda: Block(3), TypeError, "named by its parameter"),
    "rows": (lambda: Block("weight", 3), TypeError, "rows must be a slice"),
    "parts": (lambda: Block("weight", parts=0), ValueError, "at least 1"),
    "one": (lambda: resolve_blocks(nn.Linear(2, 2), Block("weight")), TypeError, "must be a sequence"),
    "stride": (lambda: view(nn.Linear(2, 4), Block("weight", slice(0, 4, 2))), ValueError, "cannot be cut"),
    "none": (lambda: resolve_blocks(nn.Linear(2, 4), []), ValueError, "at least one"),
    "groups": (
        lambda: view(nn.ConvTranspose1d(4, 4, 3, groups=2), rows("weight")),
        ValueError,
        "2 groups, whose units lie along two axes",
    ),
}


@pytest.mark.parametrize(("call", "kind", "text"), WRONG.values(), ids=WRONG)
def test_wrong_blocks_are_named(call, kind, text):
    with pytest.raises(kind, match=text):
        call()
