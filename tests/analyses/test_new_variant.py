"""The worked example: its claims hold, a fault in the layer is found, and the figure needs rows alone."""

import json

import pytest
import torch

from analyses import new_variant
from analyses._run import Options
from analyses.new_variant import Findings, GiniNorm, attacked, draw, outliers, write


class Uncentred(GiniNorm):
    """The centring is forgotten."""

    def forward(self, summed):
        return super().forward(summed) + summed.mean(1, keepdim=True)


def test_a_fault_in_the_layer_is_found():
    with pytest.raises(AssertionError, match="claimed to be invariant under WeightMatrixRescale"):
        attacked(Uncentred(new_variant.UNITS), examples=2)


def test_the_norm_is_its_formula():
    z = GiniNorm(3, eps=0.0)(torch.tensor([[1.0, 2.0, 6.0]]))
    apart = 2 * (1 + 5 + 4) / 9
    torch.testing.assert_close(z, torch.tensor([[-2.0, -1.0, 3.0]]) / apart)


def test_a_far_unit_weighs_less(tmp_path):
    last = {row["norm"]: row["spread"] for row in outliers(Options(tmp_path))}
    assert last["Gini norm"] > 1.3 * last["layer norm"]


def test_files_and_redrawing(tmp_path):
    files = write(Options(tmp_path, quick=True))
    assert {f.suffix for f in files} == {".json", ".md", ".pdf", ".png"}
    rows = json.loads((tmp_path / "new_variant.json").read_text())
    assert rows["facts"]["dimension"] == 1 + 3 * 13
    assert draw(Findings(rows["cells"], rows["outliers"], {})).axes
