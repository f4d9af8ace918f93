"""The symmetries of a whole model, found on the function itself."""

from normgeom.symmetry.blocks import Block, BlockView, gates, heads, resolve_blocks, rows
from normgeom.symmetry.discovery import Discovery, SymmetryGenerator, discover
from normgeom.symmetry.result import ScaleInvariance, ScaleInvariances, ScaleKind
from normgeom.symmetry.single import scale_invariance

__all__ = [
    "Block",
    "BlockView",
    "Discovery",
    "ScaleInvariance",
    "ScaleInvariances",
    "ScaleKind",
    "SymmetryGenerator",
    "discover",
    "gates",
    "heads",
    "resolve_blocks",
    "rows",
    "scale_invariance",
]
