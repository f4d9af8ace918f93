"""The symmetries of a whole model as a table, and what follows for its optimizer."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import nn, optim

from normgeom import report
from normgeom.optimizers import effective_learning_rate
from normgeom.symmetry.labels import stretch_of
from normgeom.symmetry.param_groups import free_together, grouped, reason_for
from normgeom.symmetry.partitions import SHIFTS, Move
from normgeom.symmetry.presented import blocks_shown, for_latex, joint_shown, module_of, text_of
from normgeom.symmetry.records import BlockSymmetry, JointSymmetry

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEADER = ("module", "block", "shape", "scale", "W + 1γᵀ", "W + c1ᵀ", "parts")


@dataclass(frozen=True, eq=False)
class SymmetryMap:
    """The scale and shift symmetries of a model; made by `scan`. Its repr is the table.

    Attributes:
        blocks: every parameter tensor (each of query, key and value where they are stacked), in order.
        joint: a basis of the joint scale symmetries of the blocks that cannot be scaled by themselves.
        joint_shifts: joint shifts by one arbitrary vector.
        absorbed_shifts: shifts of what a layer reads by an arbitrary vector, which its bias absorbs.
        mode: `train` or `eval`.
        dtype: the type in which it was decided.
        findings: what does not fit together, in sentences; most models have none.
        forwards: forward passes that the scan took.
        backwards: backward passes.
        parameters: the model's own parameters by name.
        name: the class of the model.
    """

    blocks: tuple[BlockSymmetry, ...]
    joint: tuple[JointSymmetry, ...]
    joint_shifts: tuple[JointSymmetry, ...]
    absorbed_shifts: tuple[JointSymmetry, ...]
    mode: str
    dtype: str
    findings: tuple[str, ...]
    forwards: int
    backwards: int
    parameters: Mapping[str, nn.Parameter] = field(repr=False)
    name: str = ""

    @property
    def single(self) -> tuple[BlockSymmetry, ...]:
        """The blocks that can be scaled by themselves, dead ones too."""
        return tuple(one for one in self.blocks if one.scale.holds)

    @property
    def dead(self) -> tuple[BlockSymmetry, ...]:
        """The blocks on which the outputs do not depend."""
        return tuple(one for one in self.blocks if one.dead)

    @property
    def together(self) -> tuple[JointSymmetry, ...]:
        """All that takes several blocks: joint scalings, joint shifts, and shifts that a bias absorbs."""
        return (*self.joint, *self.joint_shifts, *self.absorbed_shifts)

    @property
    def nullity(self) -> int:
        """The number of independent scale symmetries, single and joint."""
        return len(self.single) + len(self.joint)

    def __getitem__(self, block: str) -> BlockSymmetry:
        """Return what was found of one block."""
        for one in self.blocks:
            if one.block == block:
                return one
        raise KeyError(f"no block {block!r}; there are {', '.join(one.block for one in self.blocks)}")

    def cells(self, *, folded: bool = False) -> list[list[str]]:
        """Return the table row by row, under `HEADER`; the name of a module stands in its first row.

        Args:
            folded: whether layers with numbers in a row that have the same symmetries are told as one.
        """
        rows, before = [], None
        for name, members in blocks_shown(self, folded):
            one, path = members[0], module_of(name)
            module = path or "(model)"
            scale = "dead" if one.dead else text_of(members, Move.SCALE)
            shifts = [text_of(members, move) for move in SHIFTS]
            parts = "; ".join(part.text for part in one.parts)
            row = [name.removeprefix(f"{path}."), "×".join(map(str, one.shape)), scale, *shifts, parts]
            rows.append([module if module != before else "", *row])
            before = module
        return rows

    def joint_cells(self) -> list[list[str]]:
        """Return the joint symmetries row by row: rule, exponents, how many can move, the deviation."""
        return [[one.rule, one.label, one.by, f"{one.breaking:.0e}"] for one in self.together]

    def joint_lines(self, *, by: bool = True) -> list[str]:
        """Return a line for every joint symmetry, those of layers that repeat as one.

        Args:
            by: whether it says what can move by itself, such as `unit`.
        """
        lines = []
        folded = {one.block: name for name, members in blocks_shown(self, True) for one in members}
        for rule, each in joint_shown(self, folded=True):
            own = self.together[each.place]
            through = {folded[bias]: weight for bias, weight in own.through.items()}
            one = dataclasses.replace(own, exponents=each.exponents, through=through)
            lines.append(f"{rule} (by {one.by}): {one.label}" if by else f"{rule}: {one.label}")
        return lines

    def rows(self, *, folded: bool = False) -> list[dict[str, Any]]:
        """Return a dict for every block and symmetry it takes part in: what `draw_symmetry_map` draws.

        Args:
            folded: whether layers with numbers in a row that have the same symmetries are told as one.
        """
        joint, found = joint_shown(self, folded), []
        for name, (one, *_) in blocks_shown(self, folded):
            base = {"block": name, "module": module_of(name)}
            for move, verdict in one.moves.items():
                kind = "dead" if one.dead and move is Move.SCALE else "single"
                found.append({**base, "symmetry": str(move), "kind": kind, "power": int(verdict.holds)})
            for k, (rule, each) in enumerate(joint):
                power = each.exponents.get(name, 0)
                found.append({**base, "symmetry": f"{k + 1} {rule}", "kind": "joint", "power": power})
        return found

    def to_frame(self) -> pd.DataFrame:
        """Return a row for every block and move, with the numbers."""
        return pd.DataFrame(
            [
                {
                    "block": one.block,
                    "module": one.module,
                    "move": str(move),
                    **asdict(verdict),
                    "dead": one.dead,
                    "parts": "; ".join(part.text for part in one.parts if part.move is move),
                }
                for one in self.blocks
                for move, verdict in one.moves.items()
            ]
        )

    def joint_frame(self) -> pd.DataFrame:
        """Return a row for every joint symmetry."""
        names = ("rule", "label", "move", "by", "deviation", "tolerance", "breaking", "why")
        rows = [{name: getattr(one, name) for name in names} for one in self.together]
        return pd.DataFrame(rows, columns=list(names))

    def words(self) -> list[str]:
        """Return a sentence for every symmetry, single ones first, as `block: why`."""
        single = [f"{one.block}: {one.why}" for one in self.single]
        return [*single, *(f"{one.label}: {one.why}" for one in self.together)]

    def to_markdown(self) -> str:
        """Return the table, the joint symmetries and a sentence for each as Markdown."""
        parts = [report.to_markdown(HEADER, self.cells())]
        if self.joint_cells():
            parts.append(report.to_markdown(_JOINT, self.joint_cells()))
        if self.words():
            parts.append("\n".join(f"* {sentence}" for sentence in self.words()))
        return "\n\n".join([*parts, self.summary()])

    def to_latex(self) -> str:
        """Return both tables as LaTeX; ✓ and ✗ are written as words."""
        header, *cells = [[for_latex(cell) for cell in row] for row in (HEADER, *self.cells())]
        parts = [report.to_latex(header, cells, caption=f"Scale and shift symmetries of {self.name}")]
        if self.joint_cells():
            caption = f"Joint symmetries of {self.name}"
            parts.append(report.to_latex(_JOINT, self.joint_cells(), caption=caption))
        return "\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as plain types."""
        names = ("name", "mode", "dtype", "nullity", "findings", "forwards", "backwards")
        return {
            **{name: getattr(self, name) for name in names},
            "blocks": [asdict(one) for one in self.blocks],
            "joint": [{**asdict(one), "label": one.label} for one in self.joint],
            "joint_shifts": [{**asdict(one), "label": one.label} for one in self.joint_shifts],
            "absorbed_shifts": [{**asdict(one), "label": one.label} for one in self.absorbed_shifts],
        }

    def to_json(self) -> str:
        """Return all numbers as JSON; what is not finite is null."""
        return json.dumps(report.plain(self.to_dict()), indent=1, ensure_ascii=False)

    def summary(self) -> str:
        """Return what was found in a few lines."""
        dead = f", {len(self.dead)} of them dead" if self.dead else ""
        lines = [
            f"{self.name}, {self.mode} mode, decided in {self.dtype} with {self.forwards} forward and "
            f"{self.backwards} backward passes",
            f"nullity {self.nullity}: {len(self.single)} blocks can be scaled by themselves{dead}, "
            f"{len(self.joint)} joint symmetries",
        ]
        return "\n".join([*lines, *(f"! {finding}" for finding in self.findings)])

    def __repr__(self) -> str:
        """Return the table grouped by module, the joint symmetries under it, and the summary.

        Layers with numbers in a row that have the same symmetries are told as one, such as `h.0–11`; where an
        eps breaks a symmetry, the largest of theirs is shown.
        """
        cells = self.cells(folded=True)
        widths = [max(len(row[k]) for row in (HEADER, *cells)) for k in range(len(HEADER))]
        table = report.to_text(HEADER, cells, width=min(max(sum(widths) + 2 * len(widths), 110), 160))
        lines = [line.rstrip() for line in table.strip("\n").splitlines() if line.strip()]
        return "\n".join([*lines, *self.joint_lines(by=False), self.summary()])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw blocks against symmetries as a labelled matrix, on new axes if none are given.

        Layers with numbers in a row that have the same symmetries are drawn as one.
        """
        from normgeom.figures.draw_symmetry_map import draw_symmetry_map, new_axes

        rows = self.rows(folded=True)
        return draw_symmetry_map(rows, new_axes(rows) if ax is None else ax)

    def param_groups(self, *, weight_decay: float, determined: float = 0.0) -> list[dict[str, Any]]:
        """Return groups for a torch optimizer, with weight decay where the symmetries give it a meaning.

        *scale-free*: blocks whose length, or common length, the function does not see; decay only sets the
        effective learning rate. *shared*: a length that is shared with other blocks; decay balances them and
        shrinks their product. *determined*: decay shrinks the function itself. *dead*: no decay.

        Args:
            weight_decay: λ of the scale-free and the shared blocks.
            determined: λ of those whose length is part of the function.

        Returns:
            Dicts with `params`, `weight_decay`, `names`, `kind` and `why`, for `torch.optim`.

        Raises:
            ValueError: if a weight decay is negative.

        >>> from normgeom.symmetry import scan
        >>> net = nn.Sequential(nn.Linear(4, 6, bias=False), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 2))
        >>> groups = scan(net, torch.randn(8, 4)).param_groups(weight_decay=0.1)
        >>> [(group["kind"], group["names"], group["weight_decay"]) for group in groups]
        [('scale-free', ['0.weight'], 0.1),
         ('determined', ['1.weight', '1.bias', '3.weight', '3.bias'], 0.0)]
        >>> optimizer = optim.AdamW(groups, lr=1e-3)
        """
        return grouped(self, weight_decay, determined)

    def why(self, parameter: str) -> str:
        """Return in words what its symmetries say of the weight decay of a parameter."""
        return reason_for(self, parameter)

    def effective_learning_rates(self, optimizer: optim.Optimizer) -> dict[str, float]:
        """Return the effective learning rate of every block, NaN where no length of its own is free.

        Blocks that only a common factor leaves the function with have one length, that of all of them.

        Args:
            optimizer: holds the model's parameters; its settings are read as they are now.

        Raises:
            ValueError: if a parameter is in no group of the optimizer.
        """
        own = {one.block: self.parameters[one.parameter] for one in self.blocks}
        rates = {block: float("nan") for block, value in own.items() if value.requires_grad}
        for blocks in free_together(self):
            length = torch.cat([stretch_of(own[block].detach(), block).flatten() for block in blocks])
            for block in set(blocks) & rates.keys():
                rates[block] = effective_learning_rate(optimizer, own[block], part=length)
        return rates


_JOINT: Sequence[str] = ("joint symmetry", "exponents", "by", "broken by eps")
