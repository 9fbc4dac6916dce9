"""One torch thread in every test process, and slow cases of tests that have many.

Sums in another order would give other bytes, and two processes of two threads each on two cores are many times slower.
"""

import pytest
import torch

torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """``slow_where("resnet8", ...)``: cases with one of the words in their name are slow ones."""
    for item in items:
        for mark in item.iter_markers("slow_where"):
            if any(word in item.name.partition("[")[2] for word in mark.args):
                item.add_marker("slow")
