"""A metric of your own, of a finished run: the accuracy of every class, by class of device.

``fedfibos run experiments/digits/fedfibos.toml --out runs/digits`` makes a run; ``python examples/class_accuracy.py
runs/digits`` looks into its last checkpoint.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

from fedfibos import Client, reopen, submodel_module


def confusion(run: Path) -> dict[float, Tensor]:
    """The confusion matrix of each capacity's submodel on the test set: true class by predicted class, in examples."""
    opened = reopen(run)
    world, at, experiment = opened.world, opened.checkpoint, opened.experiment
    test, num_classes = world.split.test, len(world.split.classes)
    calibration = world.population.calibration(experiment.evaluation.recalibration_samples)  # of batch normalisation
    matrices = {}
    for capacity in experiment.federation.capacities:
        # Client 0: which client it is matters only where submodels are personal.
        client = Client(0, capacity, at.round, experiment.seed, experiment.local)
        submodel = world.method.extract(world.model, at.state, at.params, client)
        module = submodel_module(world.model, at.params, submodel, calibration)
        pairs = torch.zeros(num_classes**2, dtype=torch.int64)
        with torch.inference_mode():
            for batch in torch.arange(len(test)).split(500):
                predicted = module(test.batch(batch)).argmax(1)
                pairs += torch.bincount(test.labels[batch] * num_classes + predicted, minlength=num_classes**2)
        matrices[capacity] = pairs.view(num_classes, num_classes)
    return matrices


def main() -> None:
    """A line a capacity: how many of each class's test examples it gets right, in per cent."""
    for capacity, matrix in confusion(Path(sys.argv[1])).items():
        shares = 100 * matrix.diagonal() / matrix.sum(1)
        print(f"capacity {capacity:<6g}", *(f"{share:5.1f}" for share in shares.tolist()))


if __name__ == "__main__":
    main()
