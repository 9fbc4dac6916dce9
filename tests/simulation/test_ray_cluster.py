"""Joining a Ray cluster: what is refused at once and in one line. Nothing is started here."""

from __future__ import annotations

import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from fedfibos.cli import main
from fedfibos.simulation import WorkerError, ray_cluster
from fedfibos.simulation.cluster import clients_on
from fedfibos.simulation.ray_cluster import check_address, check_head, resource


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("localhost", "a Ray cluster's address must be HOST:PORT of its head, or 'auto', got 'localhost'"),
        ("host:", "must be HOST:PORT of its head, or 'auto', got 'host:'"),
        ("ray://host:10001", "must be HOST:PORT of its head, or 'auto', got 'ray://host:10001'"),
        ("127.0.0.1:99999", "no Ray cluster answers at '127.0.0.1:99999'"),
    ],
)
def test_a_wrong_address_is_one_line(address, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.").replace("(", r"\(")) as error:
        check_address(address)
    assert "\n" not in str(error.value)


def test_an_address_where_nothing_answers_is_refused_before_anything_is_written(experiment_file, tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code = main(
            ["run", str(experiment_file()), "--out", str(tmp_path / "r"), "--engine", "ray", "--address", address]
        )
    said = capsys.readouterr().err
    assert code == 2
    assert said == (
        f"fedfibos: no Ray cluster answers at '{address}' (Connection refused): "
        "'ray start --head' prints the address of its cluster\n"
    )
    assert not (tmp_path / "r").exists()


def test_a_cluster_on_the_loopback_alone_is_refused_where_ray_would_call_another_address(monkeypatch):
    monkeypatch.setattr(ray_cluster.services, "resolve_ip_for_localhost", {"127.0.0.1": "127.0.0.2"}.get)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ValueError, match="answers on this machine's loopback alone") as error:
            check_address(address)
        assert str(error.value).endswith("set RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 for this command, as for the cluster")
        monkeypatch.setattr(ray_cluster.services, "resolve_ip_for_localhost", {"127.0.0.1": "127.0.0.1"}.get)
        check_address(address)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "rya"}, "engine must be one of 'embedded', 'ray', got 'rya'; did you mean 'ray'?"),
        ({"engine": "embedded", "address": "auto"}, "it needs the engine 'ray', got address 'auto'"),
        ({"engine": "ray", "device": "cuda"}, "clients train on processors, got device 'cuda'"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")), clients_on(**options):
        pass


def test_without_ray_it_is_one_line_with_the_command(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("fedfibos.simulation.ray_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"^ray is not installed: pip install 'fedfibos\[ray\]'$"), clients_on("ray"):
        pass


@pytest.fixture
def head(monkeypatch):
    """Where a head node answers, once it listens; and the seconds that were waited for it."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setattr(ray_cluster.ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address=address))
        clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
        clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
        monkeypatch.setattr(ray_cluster, "time", clock)
        yield SimpleNamespace(listening=listening, address=address, clock=clock)


def test_a_head_node_that_is_gone_is_one_line_after_twenty_seconds(head):
    with pytest.raises(WorkerError) as error:
        check_head()
    assert str(error.value) == (
        f"the head node of the Ray cluster at {head.address} has not answered for 20 s (Connection refused): "
        "the checkpoint is kept, resume on another cluster or without one"
    )
    assert head.clock.now == 21.0


def test_a_head_node_that_comes_back_costs_nothing(head):
    def sleep(seconds):
        head.clock.now += seconds
        if head.clock.now == 5.0:
            head.listening.listen()

    head.clock.sleep = sleep
    check_head()
    assert head.clock.now == 5.0


def test_a_head_node_that_dies_while_it_is_asked_is_the_same_line(head, monkeypatch):
    dead = threading.Event()

    def nodes():
        head.listening.close()
        dead.wait(10)
        return []

    head.listening.listen()
    monkeypatch.setattr(ray_cluster, "PATIENCE", 0.01)
    monkeypatch.setattr(ray_cluster.ray, "nodes", nodes)
    with pytest.raises(WorkerError, match="has not answered for 20 s"):
        resource("CPU")
    dead.set()


def test_what_ray_raises_of_its_nodes_is_raised(head, monkeypatch):
    def nodes():
        raise TimeoutError("Ray's own")

    head.listening.listen()
    monkeypatch.setattr(ray_cluster.ray, "nodes", nodes)
    with pytest.raises(TimeoutError, match="Ray's own"):
        resource("CPU")
