"""Flower's ServerApp and ClientApp in one process, without Ray and without sockets.

``LocalGrid`` hands every message to the real client app and gives its reply to the real server app. Two private
touches of Flower are needed: the identity of the running task and the id of a message, which SuperLink sets.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import logging
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedfibos.config.experiment import Experiment, load_experiment, to_toml
from fedfibos.data import Split
from fedfibos.flower import FleetTask, client_app, loop, oversampled, server_app, strategy
from fedfibos.flower.new import TEMPLATE
from fedfibos.flower.task import FleetSettings
from fedfibos.model import Model
from fedfibos.simulation import build_world
from small_experiment import small_experiment

RUN, SERVER = 1, 1


class Clock:
    """The time of the server's loop: waiting takes none."""

    now = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Be later."""
        self.now += seconds


CLOCK = Clock()
for module in (loop, oversampled, strategy):
    module.time = CLOCK


Tamper = Callable[[Message, Message], list[Message]]
"""(what was asked, the reply) -> what arrives instead."""


def experiment_task(experiment: Experiment, model: Model, **federation: Any) -> FleetTask:
    """The task of an experiment of the simulator.

    Args:
        experiment: What the simulator would run. Clients declare their capacities themselves.
        model: Its model, as of :func:`fedfibos.simulation.build_world`.
        **federation: Further fields of :class:`FleetSettings`.
    """
    own = experiment.federation
    fields = {
        "evaluate_every": experiment.evaluation.every,
        "weighting": own.weighting,
        "budget": own.budget,
        **federation,
    }
    return FleetTask(
        experiment.build_method(),
        model,
        experiment.local,
        FleetSettings(rounds=own.rounds, cohort=own.cohort, **fields),
        experiment.seed,
        to_toml(experiment),
        experiment.server,
        experiment.privacy,
    )


@dataclass
class Node:
    """A SuperNode: its config, what becomes of its answers on the way, and how long it takes to train."""

    config: dict[str, Any]
    app: ClientApp
    tamper: Tamper | None = None
    seconds: float = 0.0


@dataclass
class LocalGrid(Grid):
    """A grid of nodes in this process."""

    nodes: dict[int, Node]
    run_config: dict[str, Any] = field(default_factory=dict)
    asked: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = RUN, 1, SERVER
        self._numbers = itertools.count(1)
        self._replies: dict[str, tuple[float, list[Message]]] = {}

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(reversed(self.nodes))  # in no order that anyone may rely on

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message_id = f"message {next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = message_id
            self.asked.append(message)
            node = self.nodes[message.metadata.dst_node_id]
            context = Context(RUN, message.metadata.dst_node_id, node.config, RecordDict(), self.run_config)
            try:
                reply = node.app(message, context)
            except Exception as error:
                reply = Message(Error(2, f"{type(error)}:<{error}>"), reply_to=message)
            replies = [reply] if node.tamper is None else node.tamper(message, reply)
            training = message.metadata.message_type == "train"
            self._replies[message_id] = CLOCK.now + node.seconds * training, replies
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        # Replies come back in an order of their own: the last first.
        there = [n for n in self._replies if n in set(message_ids) and self._replies[n][0] <= CLOCK.now]
        return [reply for message_id in reversed(there) for reply in self._replies.pop(message_id)[1]]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError  # Flower's waits for every answer; the server's loop does not


def server_context(run_config: dict[str, Any]) -> Context:
    return Context(RUN, SERVER, {}, RecordDict(), run_config)


CLIENTS = 6
CHANGES = f"""
data.partition = {{ scheme = "dirichlet", alpha = 0.5 }}
model = {{ name = "cnn", options = {{ channels = [8, 16] }} }}
local = {{ steps = 3, batch_size = 8, momentum = 0.5 }}
evaluation.every = 3
[federation]
clients = {CLIENTS}
cohort = 4
rounds = 3
capacities = {{ 1.0 = 0.3333, 0.5 = 0.3333, 0.125 = 0.3334 }}
"""


def experiment_of(folder: Path, *overrides: str) -> Experiment:
    """Three capacities, six clients with parts of the digits, a small convolutional network, three rounds."""
    path = folder / "experiment.toml"
    path.write_text(small_experiment(CHANGES))
    return load_experiment(path, overrides)


class Deployment:
    """An experiment's clients as Flower nodes, whose ids mean nothing.

    Attributes:
        nodes: Node id -> node.
        data: Flower's context of a client -> its examples.
    """

    def __init__(self, experiment: Experiment, state_dir: Path | None = None, **federation: Any) -> None:
        logging.getLogger("flwr").setLevel(logging.WARNING)
        world = build_world(experiment, device="cpu", data_dir=None, warn=lambda text: None)
        capacities = experiment.capacities().of(range(experiment.federation.clients), 0)
        self.task = experiment_task(experiment, world.model, **federation)
        self.data = lambda context: world.population.data(context.node_config["client-id"])
        app = client_app(lambda config: self.task, self.data)
        more = {} if state_dir is None else {"state-dir": str(state_dir)}
        self.nodes = {
            7919 * (n + 1) % 104729: Node({"client-id": n, "capacity": capacities[n], **more}, app)
            for n in range(experiment.federation.clients)
        }

    def node(self, client: int) -> Node:
        """The node of a client."""
        return next(node for node in self.nodes.values() if node.config["client-id"] == client)

    def run(self, out: Path, on: Split | None = None, **config: Any) -> dict[str, Any]:
        """All rounds, evaluated on a data set if there is one; the content of ``final.json``."""
        config = {"run-dir": str(out), **config}
        options = {} if on is None else {"test": lambda config: on.test, "calibration": lambda config: on.train}
        server_app(lambda config: self.task, **options)(LocalGrid(self.nodes, config), server_context(config))
        return json.loads((out / "final.json").read_text())


def lines_of(run: Path) -> list[dict[str, Any]]:
    """The lines of ``rounds.jsonl``."""
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def template_app() -> Any:
    """The module that ``fedfibos flower new`` writes."""
    spec = importlib.util.spec_from_file_location("fleet", TEMPLATE / "fleet.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def template_config(**overrides: Any) -> dict[str, Any]:
    """Its run configuration, flat as Flower hands it on."""
    table = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= {f"{key}.{name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
    return {**flat, **overrides}


def run_template(out: Path, nodes: list[dict[str, Any]], **overrides: Any) -> dict[str, Any]:
    """The template's app on nodes of those configs, in this process."""
    app = template_app()
    config = template_config(**{"run-dir": str(out), "federation.wait": 0.01, **overrides})
    grid = LocalGrid({100 + n: Node(node, app.client) for n, node in enumerate(nodes)}, config)
    app.server(grid, server_context(config))
    return json.loads((out / "final.json").read_text())
