"""A fleet of devices: dealt by share, trained with those that can run the method, the others left out by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedfibos import build_world, load_experiment, reopen, simulate
from fedfibos.cli import main
from fedfibos.config.devices import Device
from fedfibos.report import build_report
from fedfibos.runs.reading import RecordError
from fedfibos.simulation import devices as devices_module
from fedfibos.simulation.devices import deal_devices
from fedfibos.simulation.plan import measured_speed
from fedfibos.simulation.world import work_of

FLEET = Path(__file__).resolve().parents[2] / "examples" / "fleet.toml"
TINY = "model.options={channels=[4,8],hidden=16}"
SHORT = ("federation.rounds=2", "evaluation.every=2", "local.steps=1", "model.name=lenet", TINY)
SMALL = """federation.devices=[
    {name="gateway", share=0.1},
    {name="phone", share=0.4, macs_per_second=3e5, seconds=1, bytes="20 kB"},
    {name="watch", share=0.5, memory="16.81 MB", macs_per_second=3e5, seconds=1}]"""


def experiment(*overrides):
    return load_experiment(FLEET, [*SHORT, SMALL.replace("\n", ""), *overrides])


def test_shares_are_exact_and_the_deal_is_the_seeds():
    classes = [Device("a", 0.1), Device("b", 0.4), Device("c", 0.5)]
    places = deal_devices(classes, 20, 0)
    assert [places.count(n) for n in range(3)] == [2, 8, 10]
    assert places == deal_devices(classes, 20, 0)
    assert places == (1, 2, 1, 2, 1, 2, 1, 1, 2, 1, 2, 2, 1, 1, 0, 2, 0, 2, 2, 2)
    assert places != deal_devices(classes, 20, 1)


def test_clients_have_what_their_device_can_hold():
    world = build_world(experiment())
    fleet = world.population.fleet
    assert fleet.short_of(20) == []
    by_class = dict(zip(("gateway", "phone", "watch"), fleet.fits, strict=True))
    for client in world.population.everyone(1):
        fit = fleet.fits[fleet.places[client.id]]
        assert (client.capacity, client.limits) == (fit.capacity, fit.limits)
    assert by_class["gateway"].capacity == 1.0
    assert 0 < by_class["watch"].capacity < by_class["phone"].capacity < 1
    assert dict(by_class["phone"].limits) == {"bytes": 20_000, "macs": 10_000}
    watch = by_class["watch"]
    assert watch.cost.memory <= 16_810_000
    assert dict(watch.limits) == {
        "bytes": watch.cost.bytes_down + watch.cost.bytes_up,
        "macs": 10_000,
        "memory": watch.cost.tensors + int((16_810_000 - watch.cost.memory) / 1.25),
    }
    assert sum(world.population.capacities.table.values()) == pytest.approx(1)


def test_who_cannot_hold_the_method_is_left_out_everywhere(tmp_path):
    lines = []
    final = simulate(experiment("method.name=fiarse"), tmp_path / "run", workers=1, on_warning=lines.append)
    assert lines[0].startswith(
        "device 'phone' (8 clients) takes no part: a mask is trained in the shape of the whole model, which takes "
    )
    assert lines[1].startswith("device 'watch' (10 clients) takes no part: ")
    assert lines[2] == (
        "only 2 of 20 clients can take part: they are the cohort of every round, in place of federation.cohort = 5"
    )
    assert final["devices"]["gateway"]["clients"] == 2
    assert final["devices"]["phone"] == {"clients": 8, "left_out": lines[0].partition("no part: ")[2]}
    assert list(final["global_accuracy"]["submodels"]) == ["1.0", "mean"]
    world = reopen(tmp_path / "run").world
    assert world.population.ids == [n for n, place in enumerate(world.population.fleet.places) if place == 0]
    assert world.population.cohort(5, 0) == world.population.ids
    held = sorted(position for n in world.population.ids for position in world.population.parts[n].tolist())
    assert len(world.population.calibration(10**6)) == len(held)
    assert [client.id for client in world.population.everyone(0)] == world.population.ids


def test_where_nobody_can_take_part_there_is_no_run(tmp_path, capsys):
    none = 'federation.devices=[{name="phone", share=1.0, memory="1 MB"}]'
    assert main(["run", str(FLEET), *SHORT, none, "method.name=fedfibos", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.strip()
    assert "no class of federation.devices can take part: 'phone': a mask is trained in the shape" in error
    assert not (tmp_path / "run").exists()


def test_a_fleet_of_whole_models_is_the_run_without_devices(tmp_path):
    whole = 'federation.devices=[{name="any", share=1.0, memory="1 GB"}]'
    one = simulate(experiment("method.name=heterofl", whole), tmp_path / "a", workers=1)
    same = ("federation.devices=[]", "federation.capacities={1.0=1.0}")
    assert (
        simulate(experiment("method.name=heterofl", *same), tmp_path / "b", workers=1)["params_sha256"]
        == (one["params_sha256"])
    )


@pytest.mark.slow
def test_equal_bytes_for_any_workers_and_after_an_interruption(tmp_path):
    three = experiment("federation.rounds=3", "local.nested=0.5", "run.checkpoint_every=1")
    one = simulate(three, tmp_path / "one", workers=1)
    assert simulate(three, tmp_path / "two", workers=2)["params_sha256"] == one["params_sha256"]
    simulate(experiment("federation.rounds=2", "local.nested=0.5"), tmp_path / "part", workers=1)
    assert simulate(three, tmp_path / "part", workers=1, resume=True)["params_sha256"] == one["params_sha256"]


def test_a_run_is_not_gone_on_with_where_devices_would_hold_something_else(tmp_path, monkeypatch):
    simulate(experiment("federation.rounds=1"), tmp_path / "run", workers=1)
    right = devices_module.deal_devices
    monkeypatch.setattr(devices_module, "deal_devices", lambda *given: tuple(reversed(right(*given))))
    with pytest.raises(RecordError, match="holds a run whose devices held other submodels, or another version of"):
        simulate(experiment("federation.rounds=2"), tmp_path / "run", workers=1, resume=True)


def test_a_report_sets_methods_side_by_side_device_by_device(tmp_path):
    for method in ("fedfibos-channels", "fiarse"):
        simulate(experiment(f"method.name={method}"), tmp_path / method / "seed-0", workers=1)
    report = build_report([tmp_path])
    (table,) = [table for table in report.tables() if table.slug.startswith("devices-")]
    assert table.columns == ("method", "", "gateway", "phone", "watch")
    rows = {(line[0].text, line[1].text): [cell.text for cell in line[2:]] for line in table.rows}
    assert rows["FIARSE", "capacity"] == ["1", "left out", "left out"]
    assert rows["FIARSE", "global"][1:] == ["–", "–"]
    assert "left out" not in rows["FedFIbOS on channels", "capacity"]
    assert "–" not in rows["FedFIbOS on channels", "global"]
    assert rows["FIARSE", "k MACs"] == ["19.87 (n = 1)", "–", "–"]
    assert "k MACs: an example forward" in table.note
    assert "10 % gateway, 40 % phone, 50 % watch" in table.title


def test_the_committed_fleet_runs_and_one_in_ten_holds_the_whole_model(tmp_path):
    final = simulate(load_experiment(FLEET, ["federation.rounds=1"]), tmp_path / "run", workers=1)
    assert {name: of["clients"] for name, of in final["devices"].items()} == {
        "gateway": 2, "phone": 6, "watch": 8, "sensor": 4,
    }  # fmt: skip
    assert [name for name, of in final["devices"].items() if of["capacity"] == 1.0] == ["gateway"]
    assert [of["bound_by"] for of in final["devices"].values()] == [[], ["bytes"], ["seconds"], ["memory"]]
    assert final["devices"] == json.loads((tmp_path / "run" / "final.json").read_text())["devices"]


def test_a_machine_is_measured_by_what_a_step_takes():
    world = build_world(experiment("federation.devices=[]"))
    ticks = iter(t for n in range(5) for t in (n * 100.0, n * 100 + 11.0, n * 100 + 14.0))  # 5 steps 11 s, one 3 s
    work = work_of(experiment("federation.devices=[]"), world.split, world.population)
    speed = measured_speed(world.model, work, lambda: next(ticks))
    assert speed.examples_per_second == 10 / 2.0
    assert speed.macs_per_second == 3 * speed.examples_per_second * world.model.macs.at(world.model.axes.sizes)
