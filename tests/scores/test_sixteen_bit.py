"""Scores of two bytes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from score_homes import run

from fedfibos.common.validation import ExperimentError
from fedfibos.config.experiment import load_experiment
from fedfibos.scores import files as scores
from fedfibos.scores.files import FileRows
from fedfibos.scores.sixteen_bit import from_halves, to_halves


def test_two_bytes_a_score_keep_order_and_a_thousandth():
    """A code is the exponent and ten bits of fraction: 1.5 · 2⁻⁵⁰ is exact, 1 + 2⁻¹¹ is half way to 1 + 2⁻¹⁰."""
    exact = torch.tensor([0.0, 1.5 * 2.0**-60, 1.5 * 2.0**-50, 1.0, 1 + 2.0**-10, 8.0])
    assert torch.equal(from_halves(to_halves(exact)), exact)
    rounded = from_halves(to_halves(torch.tensor([1e-40, 1 + 2.0**-12, 1 + 2.0**-11, 1e9])))
    assert rounded.tolist() == [0.0, 1.0, 1 + 2.0**-10, 16 - 2.0**-7]
    scores = torch.randn(100_000, generator=torch.Generator().manual_seed(0)).mul_(4).sub_(16).exp_()
    kept = from_halves(to_halves(scores))
    assert float(((kept - scores).abs() / scores).max()) <= 2.0**-11
    assert torch.equal(kept[scores.argsort()], kept.sort().values)
    assert from_halves(to_halves(torch.tensor([-0.0]))).tolist() == [0.0]
    for bad in (-1e-9, math.nan):
        with pytest.raises(ValueError, match="two bytes hold scores of at least 0"):
            to_halves(torch.tensor([1.0, bad]))


@pytest.mark.parametrize("block", [3, 100])
def test_rows_of_two_bytes_are_rounded_rows(tmp_path, monkeypatch, block):
    monkeypatch.setattr(scores, "BLOCK", block)
    row = torch.randn(7, generator=torch.Generator().manual_seed(1)).square()
    rows = FileRows(tmp_path, score_bytes=2).put(1, row)
    assert torch.equal(rows.get(1), from_halves(to_halves(row)))
    changed = rows.revise(1, row, lambda old, span: old * 0.5)
    assert torch.equal(changed.get(1), from_halves(to_halves(row)) * 0.5)
    file = tmp_path / changed.files[1].name
    assert load_file(file)["row"].dtype == torch.uint16
    exact = replace(changed, score_bytes=4).revise(1, row, lambda old, span: old + 1e-3)
    assert torch.equal(exact.get(1), changed.get(1) + 1e-3)  # a folder may hold both


@pytest.mark.parametrize("home", ["disk", "client"])
@pytest.mark.parametrize("overrides", [(), ("method.prior=none",)])
def test_a_run_with_two_bytes_a_score_resumes_and_stays_near(toml, tmp_path, home, overrides):
    settings = (f"run.score_home={home}", "run.score_bytes=2", *overrides)

    def stop(record):
        if record["round"] == 5:
            raise KeyError

    with pytest.raises(KeyError):
        run(toml, tmp_path / "cut", *settings, on_round=stop)
    again = run(toml, tmp_path / "cut", *settings, resume=True)
    whole = run(toml, tmp_path / "whole", *settings)
    run(toml, tmp_path / "exact", f"run.score_home={home}", *overrides)
    assert again["params_sha256"] == whole["params_sha256"]
    sizes = [sum(f.stat().st_size for f in (tmp_path / run_).rglob("0*.safetensors")) for run_ in ("whole", "exact")]
    assert sizes[0] < 0.55 * sizes[1]


def test_two_bytes_a_score_need_files(toml):
    with pytest.raises(ExperimentError, match="score_bytes = 2 is for files"):
        load_experiment(toml, ["run.score_bytes=2"])
