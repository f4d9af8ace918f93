"""What a scan is given: a compiled model, sparse gradients, a batch that is not finite, a wrong `select`."""

import pytest
import torch
from torch import nn, optim

import normgeom as ng
from tests.symmetry.scanned import BATCH, Fn, seeded


def net():
    return seeded(
        lambda: nn.Sequential(nn.Linear(4, 6, bias=False), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 2))
    )


def test_the_module_behind_torch_compile_is_scanned_with_its_own_names():
    model = net()
    compiled = torch.compile(model, backend="eager")
    found = ng.scan(compiled, BATCH)
    assert found.to_json() == ng.scan(model, BATCH).to_json()
    assert found.parameters["0.weight"] is model[0].weight
    (first, *_) = ng.scale_invariance(compiled, BATCH)
    assert (first.block, first.kind) == ("0.weight", ng.ScaleKind.WHOLE)
    laws = ng.conservation(compiled, optim.SGD(compiled.parameters(), lr=0.1), symmetries=found)
    assert "‖0.weight‖²" in laws.quantities()["quantity"].tolist()


def test_a_part_that_is_compiled_is_named():
    model = nn.Sequential(nn.Linear(4, 4), torch.compile(net(), backend="eager"))
    for look in (ng.scan, ng.scale_invariance):
        with pytest.raises(ValueError, match="no part of the model may be compiled; 1 is"):
            look(model, BATCH)


def test_sparse_gradients_count_as_dense_ones():
    tokens = torch.randint(10, (5, 4), generator=torch.Generator().manual_seed(0))
    maps = []
    for sparse in (False, True):
        model = seeded(lambda s=sparse: nn.Sequential(nn.Embedding(10, 4, sparse=s), net()))
        maps.append((ng.scan(model, tokens).to_json(), repr(ng.scale_invariance(model, tokens))))
    assert maps[0] == maps[1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_outputs_that_are_not_finite_are_refused(bad):
    for look in (ng.scan, ng.scale_invariance):
        with pytest.raises(ValueError, match="the outputs must be finite; 2 of 16 numbers of one are not"):
            look(net(), torch.cat([BATCH[:1] * bad, BATCH[1:]]))


def test_outputs_with_a_mask_of_infinities_are_scanned():
    hide = Fn(lambda a: a.index_fill(1, torch.tensor([0]), -torch.inf))
    assert ng.scan(nn.Sequential(net(), hide), BATCH).nullity == 2


def test_a_select_that_picks_nothing_says_so():
    for look in (ng.scan, ng.scale_invariance):
        with pytest.raises(TypeError, match=r"such as lambda out: out\.logits; got str 'logits'"):
            look(net(), BATCH, select="logits")
        with pytest.raises(ValueError, match=r"select must pick something .* a Tensor; it raised AttributeE"):
            look(net(), BATCH, select=lambda out: out.logits)
