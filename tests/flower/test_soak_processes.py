"""A fleet of real processes in which something always goes wrong: a SuperLink, six SuperNodes, devices of chance.

Run with ``make test-flower``. With the environment variable FEDFIBOS_RECORD, what happened is written to that folder.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest
from local_grid import lines_of
from soak_record import write_soak

from fedfibos import build, task_of
from fedfibos.flower.deployment import Deployment
from fedfibos.flower.launch import Processes, _descendants, free_port
from fedfibos.flower.new import new_app
from fedfibos.runs.checkpoint import CheckpointStore

pytestmark = pytest.mark.slow
ROUNDS, LINK_DIES_AFTER, NODE_DIES_AFTER, LIMIT = 10, 5, (2, 7), 1150.0
CAPACITIES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.5)
MEASURED = 5
"""The device that gives a limit in place of a capacity."""

CONFIG = {
    "federation.rounds": ROUNDS,
    "federation.cohort": 2,
    "federation.extra": 2,
    "federation.deadline": 75.0,
    "federation.wait": 60.0,
    "federation.evaluate_every": 5,
    "local.steps": 3,
}
REASONS = {
    "dies": "",
    "hangs": "within 75 s",  # the device says so itself, or the server does where the answer comes too late
    "raises": "out of memory",
    "wrong shape": "",
    "echo": "must be of kind",
    "veto": "it is not available now: battery at 9 %",
}


def resident(pid: int) -> int:
    """MiB of a process in memory (Linux); 0 of one that has just ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    except (FileNotFoundError, ProcessLookupError):
        return 0


def command_of(pid: int) -> str:
    """The command line of a process; nothing of one that has just ended, as some of Flower's do all the time."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Soak:
    """The processes, and what is seen of them from outside."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder, self.processes, self.run = folder, processes, folder / "run"
        self.deployment = Deployment(processes, free_port())
        self.memory: list[dict[str, int]] = []
        self.end = time.monotonic() + LIMIT
        (folder / "journal").mkdir()
        new_app(folder / "app")
        settings = folder / "app" / "pyproject.toml"  # Flower overrides only keys that are written there
        settings.write_text(settings.read_text().replace("patience = 10", "measure_every = 3\npatience = 10"))
        (folder / "app" / "fleet.py").write_text((Path(__file__).parent / "chaos_fleet.py").read_text())

    def start_node(self, client: int) -> None:
        afford = {"seconds-per-step": 20.0} if client == MEASURED else {"capacity": CAPACITIES[client]}
        config = {"client-id": client, **afford, "journal": str(self.folder / "journal")}
        self.deployment.start_node(f"supernode-{client}", config)

    def start_run(self, resume: bool) -> None:
        self.deployment.start_run(self.folder / "app", {**CONFIG, "run-dir": str(self.run), "resume": resume})

    def lines(self) -> list[dict]:
        return lines_of(self.run) if (self.run / "rounds.jsonl").exists() else []

    def until(self, rounds: int) -> None:
        """Wait for that many rounds, and look at the memory of the server after each."""
        while (done := len(self.lines())) < rounds:
            assert time.monotonic() < self.end, f"round {done + 1} of {ROUNDS} at the end of the soak's time"
            self.processes.check("superlink")
            self.look(done)
            time.sleep(0.5)
        self.look(rounds)

    def look(self, done: int) -> None:
        link = self.processes.running["superlink"].pid
        # Helpers that the app has just forked bear its name, and are small.
        apps = [n for n in _descendants(link) if "flwr-serverapp" in command_of(n)]
        if done and apps and (not self.memory or self.memory[-1]["round"] != done):
            self.memory.append({"round": done, "superlink": resident(link), "serverapp": max(map(resident, apps))})

    def journal(self) -> list[dict]:
        files = (self.folder / "journal").glob("*.jsonl")
        events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return sorted(events, key=lambda event: event["time"])


def test_processes_die_and_nothing_is_lost(tmp_path):
    began = time.monotonic()
    with Processes(tmp_path) as processes:
        soak = Soak(tmp_path, processes)
        soak.deployment.start_link()
        for client in range(len(CAPACITIES)):
            soak.start_node(client)
        soak.start_run(resume=False)
        soak.until(NODE_DIES_AFTER[0])
        kill_node(soak, 1)
        soak.until(LINK_DIES_AFTER)
        time.sleep(10.0)  # in the middle of the next round
        processes.stop("superlink", at_once=True)
        processes.stop("run", at_once=True)
        before = soak.lines()
        soak.deployment.start_link()
        soak.start_run(resume=True)
        soak.until(NODE_DIES_AFTER[1])
        kill_node(soak, 4)
        soak.until(ROUNDS)
        while not (soak.run / "final.json").exists():
            assert time.monotonic() < soak.end
            time.sleep(0.5)
    lines, events = soak.lines(), soak.journal()
    assert [line["round"] for line in lines] == list(range(1, ROUNDS + 1))
    assert lines[: len(before)] == before, "what was on record when the SuperLink died still is"
    first = [event for event in events if event["run"] == events[0]["run"]]  # some begin when its server is dead
    seen = on_record(lines, first, len(before) + 1)
    seen += on_record(lines, [event for event in events if event not in first], None)
    assert seen["veto", "rejected"], "clients 1 and 4 refuse when they are asked first"
    measured = [line["measured"][str(MEASURED)]["why"] for line in lines if "measured" in line]
    assert measured[0] == "it joined"
    assert len(measured) > 1, "it was measured again"
    final = json.loads((soak.run / "final.json").read_text())
    layout = task_of(build("cnn", num_classes=10, input_shape=(1, 8, 8), seed=0), {**CONFIG, "method.name": "fedfibos"})
    checkpoint = CheckpointStore(soak.run).load_latest(layout.model.layout, pytest.fail)
    assert (checkpoint.round, checkpoint.params.sha256()) == (ROUNDS, final["params_sha256"])
    for part in ("superlink", "serverapp"):
        for first, last in ((2, len(before)), (len(before) + 2, ROUNDS)):
            sizes = {look["round"]: look[part] for look in soak.memory if first <= look["round"] <= last}
            assert max(sizes.values()) <= min(sizes.values()) * 1.15, (part, sizes)
    record(soak, lines, events, seen, time.monotonic() - began)


def kill_node(soak: Soak, client: int) -> None:
    """SIGKILL to a SuperNode and its apps; then it is started again, to Flower as another node."""
    soak.processes.stop(f"supernode-{client}", at_once=True)
    soak.start_node(client)


def on_record(lines: list[dict], events: list[dict], lost: int | None) -> Counter[tuple[str, str]]:
    """(what happened to a device, what the record says of it) of every event; ``lost``: the round that nobody finished.

    A device whose work was dropped is on record as such, whatever happened to it afterwards.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for event in events:
        client, kind = str(event["client"]), event["kind"]
        line = lines[event["round"] - 1]
        if event["round"] == lost:
            seen[kind, "round lost"] += 1
            continue
        tries = [*line.get("skipped", ()), line]
        rejected = [tried["rejected"][client] for tried in tries if client in tried["rejected"]]
        dropped = any(client in tried.get("dropped", {}) for tried in tries)
        if kind in ("sound", "slow"):
            counted = any(int(client) in tried["participants"] for tried in tries) and not rejected
            assert counted or dropped or rejected, event
            seen[kind, "counted" if counted else "dropped" if dropped else "rejected"] += 1
            continue
        assert dropped or any(REASONS[kind] in reason for reason in rejected), (event, line)
        seen[kind, "rejected" if rejected else "dropped"] += 1
    return seen


def record(soak: Soak, lines: list[dict], events: list[dict], seen: Counter, seconds: float) -> None:
    """Write down what happened, where that is asked for."""
    table: dict[str, dict[str, int]] = {}
    for (kind, what), number in sorted(seen.items()):
        table.setdefault(kind, {})[what] = number
    about = {
        "what": "a SuperLink and six SuperNodes as processes; two SuperNodes and the SuperLink were killed on the way",
        "rounds": len(lines),
        "seconds": round(seconds),
        "trainings": len(events),
        "what happened to a device, and what the record says": table,
        "late": sum(len(line.get("late", ())) for line in lines),
        "left_out": sum(len(line.get("left_out", ())) for line in lines),
        "measured": [f"{n['why']}: {n['capacity']:g}" for line in lines for n in line.get("measured", {}).values()],
        "tried_again": sum(len(line.get("skipped", ())) for line in lines),
        "MiB of the server's processes after each round": soak.memory,
    }
    write_soak("in processes", about)
