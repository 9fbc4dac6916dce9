"""The benchmarks: their sides do the same work, their numbers are what they say, and the page shows the results."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

from fedfibos.data.images import TensorData
from fedfibos.local import local_training
from fedfibos.model import model_of
from fedfibos.submodel import full
from fedfibos.tasks import TASKS
from fedfibos.training import LocalTraining
from fedfibos.types import Client

ROOT = Path(__file__).parent.parent


@pytest.fixture
def benchmarks(monkeypatch):
    """Import a module of the benchmarks folder."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:  # their plain names must not shadow anything later
        if getattr(sys.modules[name], "__file__", None) and "benchmarks" in str(sys.modules[name].__file__):
            del sys.modules[name]


def test_bare_loop_and_engine_make_the_same_steps(benchmarks):
    workloads = benchmarks("workloads")
    workload = dataclasses.replace(workloads.WORKLOADS["tiny_mlp"], examples=64, batch=64)  # order within a batch: free
    module, data = workload.module(), workload.data(0)
    start = [p.detach().clone() for p in module.parameters()]
    loss = workloads.bare_round(workload, module, start, [data])
    model = model_of(workload.module())
    local = LocalTraining(epochs=1, batch_size=64, lr=workloads.LR)
    params = model.initial_params()
    upload = local_training(model, params, full(model.layout), Client(0, 1.0, 0, 0, local, TensorData(*data)))
    named = dict(module.named_parameters())
    trained = torch.cat([named[name].detach().reshape(-1) for name in model.layout.names])
    torch.testing.assert_close(params.flat - upload.delta, trained, rtol=1e-5, atol=1e-6)
    assert float(upload.loss) == pytest.approx(loss, rel=1e-5)


def test_every_model_has_the_size_that_is_said(benchmarks):
    workloads = benchmarks("workloads")
    sizes = {name: sum(p.numel() for p in w.module().parameters()) for name, w in workloads.WORKLOADS.items()}
    assert sizes["tiny_mlp"] == 1604
    assert sizes["resnet18"] == 11_173_962
    assert 10.9e6 < sizes["mlp_11m"] < 11.1e6


def test_summary_of_turns(benchmarks):
    engine = benchmarks("engine")
    times = {"bare": [{"cpu": 1.0}, {"cpu": 2.0}, {"cpu": 4.0}], "ours": [{"cpu": 1.1}, {"cpu": 2.0}, {"cpu": 6.0}]}
    rows = engine.summary(times, "bare")
    assert rows["bare"]["cpu"] == {"seconds": [2.0, 1.0, 4.0], "ratio": [1.0, 1.0, 1.0]}
    assert rows["ours"]["cpu"] == {"seconds": [2.0, 1.1, 6.0], "ratio": [1.1, 1.0, 1.5]}


def test_the_passes_of_a_client_are_counted(benchmarks, monkeypatch):
    """Four of five clients have a mask: they read 4 bytes a score and write 1. Sums are added to by every client."""
    workloads, passes = benchmarks("workloads"), benchmarks("passes")
    monkeypatch.setattr(passes, "LONG", 1000)
    workload = dataclasses.replace(workloads.WORKLOADS["tiny_mlp"], clients=5, examples=32)
    rows = {(row["stage"], row["operation"]): row for row in passes.client_passes(workload, 1)}
    numbers = {key: [row[of] for of in ("times", "read", "written")] for key, row in rows.items()}
    assert numbers["select", "top_k"] == [0.8, 3.2, 0.8]
    assert numbers["start", "copy_"] == [1.0, 4.0, 4.0]
    assert numbers["look", "aminmax"] == [2.0, 8.0, 0.0]
    assert numbers["sums", "add_"] == [4.0, 19.6, 10.0]
    assert {stage for stage, _ in rows} <= set(passes.STAGES.values())


def test_the_fewest_passes_of_a_client_grow_with_its_steps(benchmarks):
    """Each later step reads its gradient, squares, values and mask, and writes squares and values: 21 bytes."""
    loops = dict.fromkeys(("select_scores", "start", "finish", "estimate", "look", "add", "count"), 1.0)
    fewest = benchmarks("performance_tables").fewest
    one, twenty = (fewest({**loops, "only_step": 3.0, "step": 2.0}, steps) for steps in (1, 20))
    assert one.pop("the steps") == (17, 3.0)
    assert twenty.pop("the steps") == (17 + 19 * 21, 3.0 + 19 * 2.0)
    assert one == twenty
    assert one["sums"] == (27, 3.0)
    assert fewest({"skipped": "no compiler"}, 1) == {}


def test_the_engine_piece_runs(benchmarks):
    workloads, engine = benchmarks("workloads"), benchmarks("engine")
    rows = engine.engine_against_bare(dataclasses.replace(workloads.WORKLOADS["tiny_mlp"], clients=3), 2)
    assert rows.keys() == {"bare", "fedavg", "fedfibos"}
    assert all(row["wall"]["seconds"][0] > 0 for row in rows.values())


def test_the_pages_are_the_results(benchmarks):
    """docs/explanation/performance.md and its page of further tables are what benchmarks/performance.py writes."""
    performance, tables = benchmarks("performance"), benchmarks("performance_tables")
    page = performance.PAGE.read_text(encoding="utf-8")
    assert page == performance.page()
    assert tables.PAGE.read_text(encoding="utf-8") == tables.page()
    assert "| MLP 20-64-4, 10 clients × 7 steps of 32 | 1.25 (1.24 to 1.27) | 1.45 (1.43 to 1.54) | 0.0187 |" in page
    assert "| FedFIbOS on channels | slice | 341 | 393 | 565 |" in page


def test_what_the_page_on_performance_says_of_its_tables_holds(benchmarks):
    performance = benchmarks("performance")
    rows = performance.content("engine")["rows"]
    ratio = {name: row["fedfibos"]["cpu"]["ratio"][0] for name, row in rows.items()}
    convolutional = [ratio.pop(name) for name in ("cnn", "resnet8", "resnet18")]
    assert all(0.85 < each < 1.1 for each in convolutional)  # about as much as the plain loop
    assert min(ratio["tiny_mlp"], ratio["mlp_11m"]) > max(convolutional)
    assert ratio["mlp_11m_1_step"] > 2 * ratio["mlp_11m"]
    memory = {(run["method"], run["capacity"]): run["peak_mib"] for run in performance.content("device_memory")["runs"]}
    assert memory["fedfibos-channels", 0.0625] < memory["fedfibos-channels", 0.25] < memory["fedfibos-channels", 1.0]
    assert memory["fedfibos", 0.0625] > memory["fedavg", 1.0]  # a mask saves no memory


def test_the_page_on_exports_has_the_table_of_its_record(benchmarks):
    """And what the page says of it holds."""
    export = benchmarks("export")
    record = json.loads(export.RECORD.read_text(encoding="utf-8"))
    assert export.PAGE.read_text(encoding="utf-8") == export.page(record)
    files = {(row["kind"], row["capacity"], row["file"]): row for row in record["files"]}
    for file in (".onnx", "int8.onnx", ".pte"):
        whole, mask = files["whole model", 1.0, file], files["mask", 0.0625, file]
        assert mask["bytes"] > 0.99 * whole["bytes"]  # no smaller
        assert mask["ms"] > 0.9 * whole["ms"]  # no faster
        assert files["slice", 0.0625, file]["bytes"] < 0.08 * whole["bytes"]
        assert files["slice", 0.0625, file]["ms"] < 0.2 * whole["ms"]
    assert files["whole model", 1.0, "int8.onnx"]["bytes"] < 0.26 * files["whole model", 1.0, ".onnx"]["bytes"]


def test_tables_within_pages_are_those_of_their_records(benchmarks):
    tables = benchmarks("page_tables")
    for path in tables.PAGES:
        assert tables.page(path) == path.read_text(encoding="utf-8"), path
    assert "| fedfibos-channels | 0.0625 | " in tables.device_memory()
    assert "| 100 | 3,200 | 10 Gb/s | " in tables.larger_clusters()


def test_what_the_page_on_clusters_says_of_its_tables_holds(benchmarks):
    record = benchmarks("page_tables").load("ray")
    rows = {(row["link"], row["nodes"]): row for row in record["larger"]}
    slow, fast = rows["10 Gb/s", 100]["seconds"], rows["100 Gb/s", 100]["seconds"]
    assert slow["uploads in"] > 2 * slow["training"]
    assert fast["merging"] > fast["uploads in"]
    assert all(rows["10 Gb/s", nodes]["training_share"] > 0.5 for nodes in (4, 16))
    tenth = rows["10 Gb/s", 4]
    assert tenth["seconds"]["training"] / 10 < tenth["head"] < 4 * tenth["seconds"]["training"] / 10


def test_the_gpu_scripts_floor_counts_the_papers_run(benchmarks):
    gpu = benchmarks("gpu")
    floor = gpu.floor(torch.device("cpu"), True)
    assert floor["forward_macs"] == 555_422_720  # ResNet-18 on 32 x 32
    images = 800 * 10 * 100 * 20
    assert floor["operations_seconds"] == pytest.approx(
        6 * floor["forward_macs"] * images / (floor["bf16_tflops"] * 1e12)
    )
    assert gpu.selection(torch.device("cpu"), True)["same"]


@pytest.mark.slow
def test_the_gpu_script_runs_on_a_cpu(benchmarks):
    gpu = benchmarks("gpu")
    assert len(gpu.engine(torch.device("cpu"), True)) == 4 + 1  # and what was recorded
    assert set(gpu.simulations(torch.device("cpu")).values()) == {True}
    assert gpu.step(torch.device("cpu"), True)["channels last"]["1 side by side"] > 0


@pytest.mark.slow
def test_the_gpu_script_keeps_what_a_piece_found_and_what_another_died_of(benchmarks, tmp_path, monkeypatch):
    gpu = benchmarks("gpu")
    monkeypatch.setattr(
        "sys.argv", ["gpu.py", "--out", str(tmp_path), "--device", "cpu", "--only", "selection", "step"]
    )
    really = gpu.in_a_process

    def broken(piece, arguments, timeout):
        return really(piece, [*arguments, "--device", "meta"] if piece == "step" else arguments, timeout)

    monkeypatch.setattr(gpu, "in_a_process", broken)
    gpu.main()
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["selection"]["same"] is True
    assert "Traceback" in found["step"]
    assert found["made"]["device"] == "cpu"


def test_the_page_of_forms_follows_the_record(benchmarks):
    """Every form and every tracker has a run, of as many rounds as were asked for."""
    forms = benchmarks("forms")
    record = json.loads(forms.RECORD.read_text(encoding="utf-8"))
    assert forms.page(record) in forms.PAGE.read_text(encoding="utf-8")
    named = {one["data"].partition(":")[0] for one in record["forms"]}
    assert named == {"folder", "csv", "parquet", "npz", "leaf", "hf", "dataset_of(TensorDataset)"}
    assert {one["task"] for one in record["forms"]} == set(TASKS)
    assert {one["rounds"] for one in [*record["forms"], *record["trackers"]]} == {2}
    assert all(one["files"] > 0 for one in record["trackers"])
    assert len({one["params_sha256"] for one in record["trackers"]}) == 1, "a tracker changes nothing"
