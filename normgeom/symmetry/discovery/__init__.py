"""The Lie algebra of affine symmetries of one layer, from the null space of its Jacobian."""

from normgeom.symmetry.discovery.discover import discover
from normgeom.symmetry.discovery.result import Discovery, SymmetryGenerator

__all__ = ["Discovery", "SymmetryGenerator", "discover"]
