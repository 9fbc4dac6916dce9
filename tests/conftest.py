"""One torch thread in every test process, slow cases of tests that have many, and the experiment of most tests.

Sums in another order would give other bytes, and two processes of two threads each on two cores are many times slower.
"""

import pytest
import torch

from small_experiment import small_experiment

torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """``slow_where("resnet8", ...)``: cases with one of the words in their name are slow ones."""
    for item in items:
        for mark in item.iter_markers("slow_where"):
            if any(word in item.name.partition("[")[2] for word in mark.args):
                item.add_marker("slow")


@pytest.fixture
def experiment_file(tmp_path):
    """``experiment_file("local.lr = 0.1")`` writes the small experiment with this change, and gives its path."""

    def write(changes="", *, without=(), name="experiment.toml"):
        path = tmp_path / name
        path.write_text(small_experiment(changes, without), encoding="utf-8")
        return path

    return write
