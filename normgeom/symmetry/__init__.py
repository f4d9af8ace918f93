"""The symmetries of a whole model, found on the function itself."""

from normgeom.symmetry.blocks import (
    Block,
    BlockView,
    gates,
    heads,
    resolve_blocks,
    rows,
)
from normgeom.symmetry.discovery import (
    Discovery,
    SymmetryGenerator,
    discover,
)
from normgeom.symmetry.map import SymmetryMap
from normgeom.symmetry.param_groups import LengthKind
from normgeom.symmetry.partitions import Move
from normgeom.symmetry.records import (
    BlockSymmetry,
    JointSymmetry,
    MoveVerdict,
    PartSymmetry,
)
from normgeom.symmetry.result import (
    ScaleInvariance,
    ScaleInvariances,
    ScaleKind,
)
from normgeom.symmetry.scan import scan
from normgeom.symmetry.single import scale_invariance

__all__ = [
    "Block",
    "BlockSymmetry",
    "BlockView",
    "Discovery",
    "JointSymmetry",
    "LengthKind",
    "Move",
    "MoveVerdict",
    "PartSymmetry",
    "ScaleInvariance",
    "ScaleInvariances",
    "ScaleKind",
    "SymmetryGenerator",
    "SymmetryMap",
    "discover",
    "gates",
    "heads",
    "resolve_blocks",
    "rows",
    "scale_invariance",
    "scan",
]
