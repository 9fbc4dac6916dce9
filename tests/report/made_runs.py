"""Run directories as a simulation would leave them, with numbers of our choice."""

import json
from dataclasses import replace

from fedfibos.config.choices import MethodChoice, ModelChoice
from fedfibos.config.experiment import Experiment, to_toml
from fedfibos.config.federation import Federation
from fedfibos.config.sections import Data, Evaluation
from fedfibos.data.partition import Partition
from fedfibos.report.records import find_runs, read_record
from fedfibos.report.sorting import sort_records
from fedfibos.runs.summary import summarise
from fedfibos.training import LocalTraining

FEW = Partition("pathological", classes_per_client=2)

EXPERIMENT = Experiment(
    data=Data("cifar10", FEW),
    model=ModelChoice("resnet8"),
    federation=Federation(clients=100, cohort=10, rounds=4, capacities="non-uniform"),
    method=MethodChoice("fedfibos"),
    local=LocalTraining(steps=5),
    evaluation=Evaluation(every=2),
)

CAPACITIES = ("1.0", "0.5", "0.25", "0.125", "0.0625")

ENVIRONMENT = {
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "python": "3.11.7",
    "torch": "2.13.0",
    "cpu": "Some processor",
    "cores": 2,
    "device": "cpu",
}


def evaluation(accuracy, scored):
    small = round(accuracy - 0.1, 6)
    return {
        "global": {
            "full": accuracy,
            "submodels": {**dict.fromkeys(CAPACITIES, small), "mean": small},
        },
        "local": {"mean": accuracy + 0.2, "by_capacity": dict.fromkeys(CAPACITIES, accuracy + 0.2)},
        "jaccard": dict(zip(CAPACITIES, (1.0, 0.5, 0.4, 0.3, 0.2), strict=True)) if scored else {},
        "cv_f": 10 * accuracy if scored else None,
        "cv_magnitude": 1.5,
        "kept_shares": {c: {"conv.weight": float(c), "fc_1.weight": 0.0 if c == "0.0625" else 1.0} for c in CAPACITIES},
    }


def write_run(folder, experiment, accuracies=(0.3, 0.5), finished=True, digest="ab" * 32):
    """A run directory as the engine writes it, with these accuracies of the full model."""
    folder.mkdir(parents=True)
    scored = experiment.method.name == "fedfibos"
    rounds = []
    for number in range(1, experiment.federation.rounds + 1 if finished else 3):
        line = {"round": number, "loss": 1.0, "participants": [0], "rejected": {}, "seconds": 1.0}
        line["bytes"] = {"down": 1_000_000, "up": 2_000_000}
        if number % 2 == 0:
            line["evaluation"] = evaluation(accuracies[number // 2 - 1], scored)
        rounds.append(line)
    (folder / "config.toml").write_text(to_toml(experiment))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rounds))
    if finished:
        final = {
            "method": experiment.method.name,
            "seed": experiment.seed,
            "params_sha256": digest,
            **summarise(rounds),
        }
        (folder / "final.json").write_text(json.dumps(final))


def seeds(folder, experiment, *accuracies):
    for seed, accuracy in enumerate(accuracies):
        write_run(folder / f"seed-{seed}", replace(experiment, seed=seed), (0.3, accuracy))


def content(folder):
    return sort_records([read_record(path, name) for path, name in find_runs([folder]).items()])


def table(report, slug):
    return next(table for table in report.tables() if table.slug.startswith(slug))
