"""normgeom: the invariances and the geometry of neural-network normalization.

>>> import normgeom as ng
>>> ng.check(ng.LayerNorm(), [ng.CaseRescale])[0].label
'Invariant'
"""

from normgeom.invariance import (
    EnginesDisagree,
    InvarianceRow,
    InvarianceTable,
    Kind,
    Verdict,
    assert_invariant,
    check,
    invariance_error,
    invariance_table,
)
from normgeom.layers import as_layer, frozen_batch_norm
from normgeom.norms import (
    BatchNorm,
    FrozenBatchNorm,
    InputLayerNorm,
    LayerNorm,
    NoNorm,
    RMSNorm,
    WeightNorm,
    normalize,
)
from normgeom.transforms import (
    NEGATIVE_SCALES,
    TABLE_1,
    CaseNegativeRescale,
    CaseRecenter,
    CaseRescale,
    Composition,
    DatasetNegativeRescale,
    DatasetRecenter,
    DatasetRescale,
    WeightMatrixNegativeRescale,
    WeightMatrixRecenter,
    WeightMatrixRescale,
    WeightVectorNegativeRescale,
    WeightVectorRecenter,
    WeightVectorRescale,
)

__version__ = "0.1.0"

__all__ = [
    "NEGATIVE_SCALES",
    "TABLE_1",
    "BatchNorm",
    "CaseNegativeRescale",
    "CaseRecenter",
    "CaseRescale",
    "Composition",
    "DatasetNegativeRescale",
    "DatasetRecenter",
    "DatasetRescale",
    "EnginesDisagree",
    "FrozenBatchNorm",
    "InputLayerNorm",
    "InvarianceRow",
    "InvarianceTable",
    "Kind",
    "LayerNorm",
    "NoNorm",
    "RMSNorm",
    "Verdict",
    "WeightMatrixNegativeRescale",
    "WeightMatrixRecenter",
    "WeightMatrixRescale",
    "WeightNorm",
    "WeightVectorNegativeRescale",
    "WeightVectorRecenter",
    "WeightVectorRescale",
    "as_layer",
    "assert_invariant",
    "check",
    "frozen_batch_norm",
    "invariance_error",
    "invariance_table",
    "normalize",
]
