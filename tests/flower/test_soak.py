"""A fleet in which something always goes wrong, in one process: 200 rounds, twelve clients, a server started ten times.

Nodes come and go between the starts; every answer of a round may be late, missing or none.
"""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from flwr.app import Error, Message
from local_grid import Deployment, experiment_of, lines_of
from soak_record import write_soak

from fedfibos.flower.messages import payload_in, payload_record, refusal
from fedfibos.runs.checkpoint import CheckpointStore

pytestmark = pytest.mark.slow
ROUNDS, SEGMENT, CLIENTS = 200, 20, 12
FAULTS = ("late", "raises", "hangs", "twice", "cut short", "wrong shape")
OFTEN = 0.15


class Weather:
    """What goes wrong, from a seed: every answer to a round's question may, and nodes come and go.

    Attributes:
        happened: (client, what) of every fault in a round.
        away: Nodes that are switched off, by number.
    """

    def __init__(self, deployment: Deployment, seed: int) -> None:
        self.deployment, self.chance, self.happened, self.away = deployment, random.Random(seed), Counter(), {}
        for node in deployment.nodes.values():
            node.tamper = self.tamper(node)

    def tamper(self, node):
        def change(asked, reply):
            client, kind = node.config["client-id"], None
            if asked.metadata.message_type == "train" and self.chance.random() < OFTEN:
                kind = self.chance.choice(FAULTS)
                self.happened[client, kind] += 1
            return answer(kind, asked, reply)

        return change

    def between_rounds(self) -> None:
        """Some nodes go, some come back, at least four stay."""
        nodes = self.deployment.nodes
        for number in list(nodes):
            if self.chance.random() < 0.05 and len(nodes) > 4:
                self.away[number] = nodes.pop(number)
        for number in list(self.away):
            if self.chance.random() < 0.3:
                nodes[number] = self.away.pop(number)


def answer(kind, asked, reply):
    """What arrives instead of a reply."""
    if kind == "late":
        return []
    if kind == "twice":
        return [reply, reply]
    if kind == "raises":
        return [Message(Error(2, "<class 'RuntimeError'>:<'out of memory'>"), reply_to=asked)]
    if kind == "hangs":
        return [Message(refusal("it was not done within 5 s: stopped in data, fleet.py line 9"), reply_to=asked)]
    if kind == "cut short":
        reply.content = payload_record(payload_in(reply)[:-40])
    if kind == "wrong shape":
        reply.content = payload_record(payload_in(asked))
    return [reply]


REASONS = {
    "late": "no answer within",
    "raises": "it failed: <class 'RuntimeError'>:<'out of memory'>",
    "hangs": "it was not done within 5 s",
    "twice": "it answered 2 times",
    "cut short": "damaged",
    "wrong shape": "must be of kind",
}


def resident() -> int:
    """Bytes of this process in memory (Linux)."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_two_hundred_rounds_lose_nothing(tmp_path):
    short = (f"federation.clients={CLIENTS}", "federation.cohort=5", "local.steps=1", "evaluation.every=1000")
    out, weather, memory = tmp_path / "run", None, []
    deployment = Deployment(experiment_of(tmp_path, *short, f"federation.rounds={ROUNDS}"), wait=0.01)
    weather = Weather(deployment, seed=1)
    for rounds in range(SEGMENT, ROUNDS + 1, SEGMENT):
        experiment = experiment_of(tmp_path, *short, f"federation.rounds={rounds}")
        deployment.task = Deployment(experiment, wait=0.01).task
        deployment.run(out, resume=rounds > SEGMENT)  # a server that was started again
        weather.between_rounds()
        memory.append(resident())
    lines = lines_of(out)
    assert [line["round"] for line in lines] == list(range(1, ROUNDS + 1))
    recorded = Counter()
    for line in lines:
        for tried in (*line.get("skipped", ()), line):
            assert set(tried["rejected"]) <= {str(n) for n in tried["participants"]}
            for client, reason in tried["rejected"].items():
                (kind,) = [kind for kind, words in REASONS.items() if words in reason]
                recorded[int(client), kind] += 1
    assert recorded == weather.happened, "every fault is on record, and nothing else"
    assert {kind for _, kind in recorded} == set(FAULTS)
    assert sum(recorded.values()) > 100
    checkpoint = CheckpointStore(out).load_latest(deployment.task.model.layout, pytest.fail)
    assert checkpoint.round == ROUNDS
    assert bool(torch.isfinite(checkpoint.params.flat).all())
    usable = sum(len(line["participants"]) - len(line["rejected"]) for line in lines)
    assert usable > 600
    table = Counter(kind for _, kind in recorded.elements())
    about = {"rounds": len(lines), "clients": CLIENTS, "starts of the server": ROUNDS // SEGMENT, "usable": usable}
    sizes = [size >> 20 for size in memory]
    write_soak("in one process", {**about, "rejected": dict(sorted(table.items())), "MiB after each start": sizes})
    assert memory[-1] < memory[2] * 1.05, f"memory grows: {[size >> 20 for size in memory]} MiB"
