"""Training: corpora, tasks, the loop, checkpoints and logs."""

from normgeom.training.checkpoints import checkpoints, load_checkpoint
from normgeom.training.corpus import NOVELS, Corpus
from normgeom.training.evaluation import HeldOut, evaluate
from normgeom.training.log import read_log
from normgeom.training.loop import NonFiniteTraining, StepRecord
from normgeom.training.next_character import NextCharacter
from normgeom.training.progress import with_progress_bar
from normgeom.training.sequential_digits import SequentialDigits
from normgeom.training.settings import CELLS, OPTIMIZERS, Settings
from normgeom.training.signals import TrainingStopped
from normgeom.training.tasks import Batch, Task
from normgeom.training.train import train

__all__ = [
    "CELLS",
    "NOVELS",
    "OPTIMIZERS",
    "Batch",
    "Corpus",
    "HeldOut",
    "NextCharacter",
    "NonFiniteTraining",
    "SequentialDigits",
    "Settings",
    "StepRecord",
    "Task",
    "TrainingStopped",
    "checkpoints",
    "evaluate",
    "load_checkpoint",
    "read_log",
    "train",
    "with_progress_bar",
]
