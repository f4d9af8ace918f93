"""The map as a table, as groups of an optimizer, as rates."""

import json

import numpy as np
import pytest
import torch
from torch import nn, optim

import normgeom as ng
from tests.golden.scan_models import reference
from tests.symmetry.scanned import BATCH, seeded


@pytest.fixture(scope="module")
def gpt():
    model, batch = reference("pre-LN")
    return model, ng.scan(model, batch)


@pytest.fixture(scope="module")
def net():
    model = seeded(
        lambda: nn.Sequential(
            nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)
        )
    )
    return model, ng.scan(model, BATCH)


def test_the_repr_is_the_table(net):
    text = repr(net[1])
    assert "gain/next weight pair: 1.weight^+1 1.bias^+1 3.weight^-1" in text
    assert text.splitlines()[-1] == (
        "nullity 3: 2 blocks can be scaled by themselves, 1 of them dead, 1 joint symmetries"
    )
    row = next(line.split() for line in text.splitlines() if line.split()[:2] == ["0", "weight"])
    assert row[:4] == ["0", "weight", "6×4", "≈"]
    assert "row scale 6/6" in text


def test_every_format_has_every_block_and_symmetry(net):
    found = net[1]
    for text in (found.to_markdown(), found.to_latex(), found.to_json()):
        assert "gain/next weight pair" in text
        assert text.count("weight") >= 4
    assert found.to_latex().count(r"\toprule") == 2
    held = json.loads(found.to_json())
    assert (held["nullity"], held["joint"][0]["exponents"]) == (
        3,
        {"1.weight": 1, "1.bias": 1, "3.weight": -1},
    )
    assert [one["block"] for one in held["blocks"]] == [name for name, _ in net[0].named_parameters()]
    assert set(held["blocks"][0]["moves"]) == {"scale", "shift along units", "shift along inputs"}
    frame = found.to_frame()
    assert frame.query("block == '0.weight' and move == 'scale'")["holds"].tolist() == [True]
    assert found.joint_frame()["rule"].tolist() == ["gain/next weight pair"]


def test_a_sentence_for_every_symmetry(gpt):
    found = gpt[1]
    words = found.words()
    assert len(words) == len(found.single) + len(found.together)
    assert all(sentence.rstrip().endswith(tuple("abcdefghijklmnopqrstuvwxyz)")) for sentence in words)
    assert all(f"* {sentence}" in found.to_markdown().splitlines() for sentence in words)


def test_folded_lines_say_where_a_weight_carries_a_shift(gpt):
    lines = gpt[1].joint_lines(by=False)
    assert "shift absorbed by a bias ×2: b.0–1.n2.bias·+1 b.0–1.f1.bias·-1W" in lines
    assert sum(line.endswith("W") for line in lines) == len(gpt[1].absorbed_shifts) / 2 == 3


def test_a_block_by_its_name(net):
    assert net[1]["0.bias"].dead
    with pytest.raises(KeyError, match=r"no block '9'; there are 0\.weight"):
        net[1]["9"]


def test_the_groups_hold_every_parameter_once(gpt, net):
    for model, found in (gpt, net):
        groups = found.param_groups(weight_decay=0.1)
        held = [id(p) for group in groups for p in group["params"]]
        assert sorted(held) == sorted(id(p) for p in model.parameters())
        optimizer = optim.AdamW(groups, lr=1e-3)
        assert [g["weight_decay"] for g in optimizer.param_groups] == [g["weight_decay"] for g in groups]


def test_decay_is_set_by_symmetry_and_says_why(net):
    groups = {g["kind"]: g for g in net[1].param_groups(weight_decay=0.1, determined=0.01)}
    assert {kind: (g["names"], g["weight_decay"]) for kind, g in groups.items()} == {
        "scale-free": (["0.weight"], 0.1),
        "shared": (["1.weight", "1.bias", "3.weight"], 0.1),
        "determined": (["3.bias", "5.weight", "5.bias"], 0.01),
        "dead": (["0.bias"], 0.0),
    }
    assert "effective learning rate" in groups["scale-free"]["why"]
    assert "shrinks the function itself" in groups["determined"]["why"]
    assert net[1].why("0.bias").startswith("dead: the outputs do not depend on these")
    with pytest.raises(ValueError, match=r"weight_decay must be at least 0; got -1\.0"):
        net[1].param_groups(weight_decay=-1.0)
    with pytest.raises(KeyError, match="no trainable parameter 'x'"):
        net[1].why("x")


@pytest.mark.parametrize("kind", ["scale-free", "dead"])
def test_decay_of_a_free_group_leaves_the_function(gpt, kind):
    model, found = gpt
    batch = reference("pre-LN")[1]
    (names,) = [g["names"] for g in found.param_groups(weight_decay=0.1) if g["kind"] == kind]
    own = dict(model.named_parameters())
    decayed = {name: 0.9 * own[name] for name in names}
    before, after = model(batch).detach(), torch.func.functional_call(model, decayed, (batch,)).detach()
    assert float((before - after).abs().max() / before.abs().max()) < 1e-12


def test_decay_of_a_shared_group_does_not(gpt):
    model, found = gpt
    batch = reference("pre-LN")[1]
    (names,) = [g["names"] for g in found.param_groups(weight_decay=0.1) if g["kind"] == "shared"]
    own = dict(model.named_parameters())
    after = torch.func.functional_call(model, {n: 0.9 * own[n] for n in names}, (batch,))
    assert float((model(batch) - after).detach().abs().max()) > 1e-3


def test_effective_learning_rates(gpt, net):
    model, found = net
    rates = found.effective_learning_rates(optim.SGD(model.parameters(), lr=0.5))
    own = dict(model.named_parameters())
    assert rates["0.weight"] == pytest.approx(0.5 / float(own["0.weight"].detach().square().sum()))
    assert [name for name, rate in rates.items() if np.isfinite(rate)] == ["0.weight"]
    model, found = gpt
    rates = found.effective_learning_rates(optim.AdamW(model.parameters(), lr=0.5))
    stream = next(one for one in found.joint if set(one.exponents.values()) == {1})
    length = sum(float(model.get_parameter(name).detach().square().sum()) for name in stream.exponents) ** 0.5
    assert [rates[name] for name in stream.exponents] == pytest.approx([0.5 / length] * 10)


def test_the_pieces_of_a_stacked_tensor_have_rates_of_their_own():
    class Normalized(nn.Module):
        def __init__(self):
            super().__init__()
            self.num_heads, self.qkv = 2, nn.Linear(6, 24, bias=False)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            return ((q / q.norm(dim=-1, keepdim=True)) @ (k / k.norm(dim=-1, keepdim=True)).T).softmax(-1) @ v

    model = seeded(lambda: nn.Sequential(nn.Linear(4, 6), Normalized()))
    weight = model[1].qkv.weight.detach()
    rates = ng.scan(model, BATCH).effective_learning_rates(optim.SGD(model.parameters(), lr=0.5))
    wanted = [0.5 / float(weight[k : k + 8].square().sum()) for k in (0, 8)]
    assert [rates[f"1.qkv.weight[{k}:{k + 8}]"] for k in (0, 8)] == pytest.approx(wanted)
    assert np.isnan(rates["1.qkv.weight[16:24]"])


def test_parameters_that_do_not_train_are_in_no_group():
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 6, bias=False), nn.LayerNorm(6)))
    model[1].requires_grad_(False)
    found = ng.scan(model, BATCH)
    assert [g["names"] for g in found.param_groups(weight_decay=0.1)] == [["0.weight"]]


def test_rows_say_what_is_drawn(net):
    rows = net[1].rows()
    marked = {(row["block"], row["symmetry"], row["power"]) for row in rows if row["power"]}
    assert ("3.weight", "1 gain/next weight pair", -1) in marked
    assert ("0.weight", "scale", 1) in marked
    assert {row["kind"] for row in rows} == {"single", "dead", "joint"}
