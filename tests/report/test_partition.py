"""The picture of who has which examples, from a run's own record."""

from __future__ import annotations

import json

import pytest
import torch
from made_runs import EXPERIMENT, write_run

from fedfibos.config.experiment import load_experiment
from fedfibos.report import build_report, html, write_report
from fedfibos.simulation import dealt as dealt_module
from fedfibos.simulation import simulate
from fedfibos.simulation.world import build_world


def test_a_run_notes_who_has_which_classes(tmp_path, monkeypatch):
    experiment = load_experiment("experiments/digits/fedfibos.toml", ("federation.rounds=1",))
    simulate(experiment, tmp_path / "run", workers=1)
    noted = json.loads((tmp_path / "run/partition.json").read_text())
    population = build_world(experiment).population
    assert noted["classes"] == [str(n) for n in range(10)]
    assert len(noted["counts"]) == len(population)
    for client, counts in enumerate(noted["counts"]):
        assert counts == torch.bincount(population.data(client).labels, minlength=10).tolist()
    monkeypatch.setattr(dealt_module, "LARGEST", 10)
    simulate(experiment, tmp_path / "large", workers=1)
    assert not (tmp_path / "large/partition.json").exists()


@pytest.mark.slow
def test_the_report_shows_it_where_it_is_on_record(tmp_path):
    write_run(tmp_path / "runs/a", EXPERIMENT)
    assert "partition-" not in " ".join(figure.slug for figure in build_report([tmp_path / "runs"]).figures())
    dealt = {"classes": ["cat", "dog"], "counts": [[3, 0], [1, 2], [0, 5]]}
    (tmp_path / "runs/a/partition.json").write_text(json.dumps(dealt))
    report = build_report([tmp_path / "runs"])
    (figure,) = (figure for figure in report.figures() if figure.slug.startswith("partition-"))
    assert figure.title.startswith("Who has which examples: CIFAR-10")
    assert b">cat<" in figure.wide
    assert figure.title in html(report)
    names = {path.name for path in write_report(report, tmp_path / "report.html")}
    assert f"{figure.slug}.pdf" in names
