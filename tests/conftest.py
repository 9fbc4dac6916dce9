"""One torch thread in every test process.

Sums in another order would give other bytes, and two processes of two threads each on two cores are many times slower.
"""

import torch

torch.set_num_threads(1)
