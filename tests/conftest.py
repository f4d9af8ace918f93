"""One thread a test process: the tests are small, and several processes share the cores."""

import torch

torch.set_num_threads(1)
