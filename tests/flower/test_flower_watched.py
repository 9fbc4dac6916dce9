"""A fleet that is looked at: metrics for Prometheus, JSON logs, trackers, what clients say of their training."""

from __future__ import annotations

import json
import logging
import socket
import urllib.request

import pytest
from local_grid import Deployment, experiment_of, lines_of

from fedfibos.common.extras import MissingExtraError
from fedfibos.flower.json_log import json_lines
from fedfibos.flower.metrics import shown_metrics
from fedfibos.simulation import simulate

LINE = {
    "round": 2,
    "loss": 0.5,
    "participants": [0, 1, 2],
    "rejected": {"1": "no answer within 5 s", "2": "no answer within 7 s"},
    "dropped": {"3": "it had not answered when 1 upload had counted"},
    "bytes": {"down": 10, "up": 20},
    "seconds": 1.0,
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def read(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line and line[0] != "#"]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_prometheus_reads_what_the_last_round_came_to():
    pytest.importorskip("prometheus_client", reason="an extra")
    port = free_port()
    with shown_metrics(port, "127.0.0.1", 9) as show:
        show(LINE, 4)
        found = read(port)
    assert found["fedfibos_round"] == 2.0
    assert found["fedfibos_rounds"] == 9.0
    assert found["fedfibos_connected"] == 4.0
    assert found["fedfibos_participants_total"] == 3.0
    assert found["fedfibos_dropped_total"] == 1.0
    assert found['fedfibos_rejected_total{kind="no answer within N s"}'] == 2.0
    assert found['fedfibos_value{name="loss"}'] == 0.5
    assert found['fedfibos_value{name="bytes/up"}'] == 20.0
    with pytest.raises(OSError, match="refused"):
        read(port)


def test_a_port_that_is_taken_is_one_line():
    pytest.importorskip("prometheus_client", reason="an extra")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(ValueError, match=rf"^federation.metrics_port: nothing can listen at 127.0.0.1:{port}: "),
            shown_metrics(port, "127.0.0.1", 1),
        ):
            pass


def test_metrics_without_the_package_are_one_line(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with (
        pytest.raises(MissingExtraError, match=r"not installed: pip install 'fedfibos\[prometheus\]'"),
        shown_metrics(9999, "127.0.0.1", 1),
    ):
        pass
    with shown_metrics(None, "127.0.0.1", 1) as show:
        show(LINE, 4)


def test_a_servers_log_is_json_while_it_is_wanted(capsys):
    log, handler = logging.getLogger("a fleet"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("plain %(message)s"))
    log.addHandler(handler)
    with json_lines(log, True):
        log.warning("round %d:\n  lost", 3)
    log.warning("after")
    first, second = capsys.readouterr().err.splitlines()
    said = json.loads(first)
    assert (said["level"], said["text"]) == ("warning", "round 3: lost")
    assert second == "plain after"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fleet_records_trackers_clients_and_its_best(tmp_path):
    pytest.importorskip("tensorboard", reason="an extra")
    parquet = pytest.importorskip("pyarrow.parquet", reason="an extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    experiment = experiment_of(tmp_path)
    plain = simulate(experiment, tmp_path / "simulated", workers=1)
    fleet = Deployment(experiment, log=("tensorboard",), client_records=True, best="loss", evaluate_every=1)
    from fedfibos.simulation.world import load_split

    split = load_split(experiment, None, print)
    final = fleet.run(tmp_path / "run", on=split)
    assert final["params_sha256"] == plain["params_sha256"]
    records = lines_of(tmp_path / "run")
    for record in records:
        assert list(record["clients"]) == [str(n) for n in record["participants"]]
        for client, part in record["clients"].items():
            assert part["down"] == record["bytes_by_client"][client]["down"]
            assert part["seconds"] > 0
            assert part["memory"] > 10**7
    table = parquet.read_table(tmp_path / "run/clients.parquet")
    assert table.num_rows == sum(len(record["participants"]) for record in records)
    events = EventAccumulator(str(tmp_path / "run/tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3]
    losses = [record["loss"] for record in records]
    assert (tmp_path / f"run/checkpoint/round-{losses.index(min(losses)) + 1:06d}").exists()


def test_settings_of_what_is_looked_at_are_checked(tmp_path):
    for wrong, said in (({"log": ("tensorbord",)}, "tensorboard"), ({"best": "accuracy"}, "a number of a round")):
        with pytest.raises(ValueError, match=said):
            Deployment(experiment_of(tmp_path), **wrong)
