"""Real processes on the loopback: SuperLink, SuperNodes, one process a message; plain and over TLS.

Run with ``make test-flower``. With the environment variable FEDFIBOS_RECORD, the bytes of every method are written to
that folder.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from local_grid import lines_of, run_template

from fedfibos.flower.demo import CAPACITIES, fleet
from fedfibos.methods import METHODS
from fedfibos.runs.environment import commit

pytestmark = pytest.mark.slow
NODES = [{"client-id": n, "capacity": capacity} for n, capacity in enumerate(CAPACITIES)]
SHORT = {"federation.rounds": 2, "local.steps": 5, "federation.evaluate_every": 2}


@pytest.fixture(scope="module")
def shared_fleet(tmp_path_factory):
    """One SuperLink and three SuperNodes for all methods, and what their runs sent."""
    sent = {}
    with fleet(tmp_path_factory.mktemp("fleet")) as running:
        yield running, sent
    if (folder := os.environ.get("FEDFIBOS_RECORD")) and sent:
        about = {
            "what": "payloads of the template's network on the digits, three clients, two rounds; bytes in all",
            "fedfibos": version("fedfibos"),
            "flwr": version("flwr"),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "commit": commit(),
        }
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "bytes.json").write_text(json.dumps({**about, "methods": sent}, indent=1) + "\n")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_parameters_of_the_grid_in_one_process(shared_fleet, tmp_path, method):
    running, sent = shared_fleet
    outcome = running.run(method, {**SHORT, "method.name": method})
    assert (
        outcome.final["params_sha256"]
        == run_template(tmp_path / "one", NODES, **{**SHORT, "method.name": method})["params_sha256"]
    )
    assert all(line["rejected"] == {} for line in outcome.rounds)
    for one in outcome.traffic:
        overhead = one.connection_down + one.connection_up - one.payload_down - one.payload_up
        assert 0 < overhead < 300_000, "what crosses the connection is the payload, and Flower's own messages"
    sent[method] = {
        "rounds": len(outcome.rounds),
        "full_model": outcome.full,
        "seconds": [line["seconds"] for line in outcome.rounds],
        "clients": [asdict(one) for one in outcome.traffic],
    }


def test_a_supernode_killed_in_a_round_is_named_and_the_others_go_on(tmp_path):
    with fleet(tmp_path) as running:
        processes = running.deployment.processes
        out = tmp_path / "run"
        config = {**SHORT, "federation.deadline": 25.0, "run-dir": str(out), "federation.wait": 5.0}
        running.deployment.start_run(running.app, config)
        wait_until(lambda: "train message" in processes.log("supernode-1").read_text(), processes)
        processes.stop("supernode-1", at_once=True)
        wait_until(lambda: (out / "final.json").exists(), processes)
        first, second = lines_of(out)
        assert list(first["rejected"]) == ["1"]
        assert first["rejected"]["1"] == "no answer within 25 s"
        assert first["participants"] == [0, 1, 2]
        assert set(second["rejected"]) <= {"1"}


HANGS = """
def data(context: Context) -> Dataset:
    if context.node_config["client-id"] == 1 and {when}:
        {hang}
    return usual(context)
"""


@pytest.mark.parametrize(
    "hang",
    ["time.sleep(3600)", "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM}); time.sleep(3600)"],
    ids=["asleep", "out of reach"],
)
def test_a_client_that_hangs_in_a_run_is_there_in_the_next(tmp_path, hang):
    """Its app ends by itself after the deadline: by an exception, or from outside where none comes through."""
    with fleet(tmp_path) as running:
        processes = running.deployment.processes
        app, flag = running.app / "fleet.py", tmp_path / "hang"
        text = app.read_text().replace("def data(", "def usual(")
        function = HANGS.format(when=f"pathlib.Path({str(flag)!r}).exists()", hang=hang)
        text = text.replace("def test(config", f"{function}\n\ndef test(config", 1)
        app.write_text(
            text.replace("import torch\n", "import pathlib\nimport signal\nimport time\n\nimport torch\n", 1)
        )
        flag.touch()
        config = {**SHORT, "federation.deadline": 20.0, "federation.wait": 1.0}
        hung = running.run("hung", config, limit=300)
        flag.unlink()
        # From outside Python the process ends 30 s after the deadline, and its SuperNode notices within 60 s more.
        wait_until(lambda: "it was not done within 20 s" in (log := processes.log("supernode-1").read_text())
                   or "ClientApp crashed" in log or "Timeout (" in log, processes, limit=120)  # fmt: skip
        sound = running.run("sound", {**config, "federation.wait": 120.0, "federation.deadline": 120.0}, limit=300)
    assert [line["participants"] for line in hung.rounds] == [[0, 2]] * 2
    assert "it did not say who it is within 20 s" in hung.rounds[0]["refused"].values()
    assert sound.rounds[-1]["participants"] == [0, 1, 2]
    assert sound.rounds[-1]["rejected"] == {}
    assert len(sound.rounds[-1]["keys"]) == 3


def test_everything_crashes_and_goes_on_to_the_same_parameters(tmp_path):
    """Client-held scores, SIGKILL to SuperLink and SuperNodes between rounds, then a new run with resume."""
    settings = {**SHORT, "federation.rounds": 3, "federation.scores": "client", "method.sharing": "client"}
    devices = {"state-dir": str(tmp_path / "devices")}
    expected = run_template(
        tmp_path / "one", [{**node, "state-dir": str(tmp_path / "others")} for node in NODES], **settings
    )
    held_by_server = run_template(tmp_path / "two", NODES, **{**settings, "federation.scores": "server"})
    assert held_by_server["params_sha256"] == expected["params_sha256"]
    out = tmp_path / "run"
    for attempt, folder in enumerate((tmp_path / "first", tmp_path / "second")):
        folder.mkdir()
        with fleet(folder, devices) as running:
            with_sharing(running.app)
            config = {**settings, "run-dir": str(out), "resume": attempt == 1}
            running.deployment.start_run(running.app, config)
            processes = running.deployment.processes
            if attempt == 0:
                wait_until(lambda: out.exists() and len(lines_if_any(out)) >= 1, processes)
                for name in list(processes.running):
                    processes.stop(name, at_once=True)
            else:
                wait_until(lambda: (out / "final.json").exists(), processes)
    assert json.loads((out / "final.json").read_text())["params_sha256"] == expected["params_sha256"]
    assert [line["round"] for line in lines_of(out)] == [1, 2, 3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_everything(tmp_path, number):
    """Ctrl-C or ``kill`` in the middle of the demo: the exit code says so, and no process of it is left."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "fedfibos", "flower", "demo", "--keep", str(tmp_path / "demo")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_listen_to_ctrl_c,
    )
    end = time.monotonic() + 120
    log = tmp_path / "demo" / "logs" / "supernode-2.log"
    while not (log.exists() and "Receiving" in log.read_text()):
        assert time.monotonic() < end
        assert demo.poll() is None
        time.sleep(0.5)
    assert processes_with(str(tmp_path / "demo"))
    demo.send_signal(number)
    text, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert "fedfibos: interrupted" in text.splitlines()
    assert processes_with(str(tmp_path / "demo")) == []


def _listen_to_ctrl_c():
    """A shell that starts the tests in the background makes its children deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(condition, processes, *watched, limit=240.0):
    """Until the condition holds, while the SuperLink and those processes run."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"not within {limit:g} s: see {processes.folder / 'logs'}"
        processes.check(*[name for name in ("superlink", *watched) if name in processes.running])
        time.sleep(0.5)


def lines_if_any(run):
    return lines_of(run) if (run / "rounds.jsonl").exists() else []


def with_sharing(app):
    """Name the setting in the app's pyproject: Flower overrides only keys that are written there."""
    path = app / "pyproject.toml"
    path.write_text(path.read_text().replace('name = "fedfibos"  #', 'sharing = "client"\nname = "fedfibos"  #'))


def processes_with(text: str) -> list[str]:
    """Processes whose environment or command names a folder (Linux)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if text.encode() in environment and command:
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found
