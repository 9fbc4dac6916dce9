"""One worker of the engine against a bare PyTorch loop that makes the same SGD steps and nothing federated."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import torch
from torch import Tensor
from workloads import CAPACITIES, LR, Workload, bare_round, stopwatch

from fedfibos.data.images import TensorData
from fedfibos.method import Method
from fedfibos.methods.fedavg import FedAvg
from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.model import model_of
from fedfibos.round import federated_round
from fedfibos.simulation.pool import WorkerPool
from fedfibos.simulation.setting import Setting
from fedfibos.simulation.workers import InProcess
from fedfibos.training import LocalTraining
from fedfibos.types import Client

METHODS: dict[str, Method] = {"fedavg": FedAvg(), "fedfibos": FedFIbOS()}


def engine_rounds(
    workload: Workload,
    method: Method,
    *,
    precision: str = "float32",
    workers: int = 1,
    channels_last: bool = False,
) -> tuple[Callable[[], None], Callable[[], None]]:
    """``(run the next round, close)`` of the engine on a workload."""
    model = model_of(workload.module(), channels_last=channels_last)
    data = [TensorData(*workload.data(n)) for n in range(workload.clients)]
    setting = Setting(method, model, data.__getitem__, data[0], None, 100)
    engine = InProcess(setting) if workers == 1 else WorkerPool(setting, workers)
    local = LocalTraining(epochs=1, batch_size=workload.batch, lr=LR, precision=precision)
    params = model.initial_params()
    state, t = method.init(params), 0

    def run() -> None:
        nonlocal state, params, t
        cohort = [Client(n, CAPACITIES[n % 5], t, 0, local) for n in range(workload.clients)]
        state, params, _ = federated_round(method, model, state, params, cohort, engine.train)
        t += 1

    return run, engine.close


def bare_rounds(workload: Workload) -> Callable[[], None]:
    """Run the next round of the bare loop."""
    module = workload.module()
    start = [p.detach().clone() for p in module.parameters()]
    data = [workload.data(n) for n in range(workload.clients)]
    return lambda: bare_round(workload, module, start, data) and None


def in_turn(sides: dict[str, Callable[[], None]], repeats: int) -> dict[str, list[dict[str, float]]]:
    """Time the sides one after another, ``repeats`` times over; the first turn only warms up."""
    times: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, run in sides.items():
            watch = stopwatch()
            run()
            if turn > 0:
                times[name].append(watch())
    return times


def summary(times: dict[str, list[dict[str, float]]], base: str) -> dict[str, Any]:
    """Median, least and most seconds of every side, and its ratios to ``base`` turn by turn: median, least, most."""
    rows: dict[str, Any] = {}
    for name, samples in times.items():
        rows[name] = {}
        for kind in samples[0]:
            seconds = [sample[kind] for sample in samples]
            ratios = [s / b[kind] for s, b in zip(seconds, times[base], strict=True)]
            rows[name][kind] = {"seconds": _spread(seconds), "ratio": _spread(ratios)}
    return rows


def _spread(values: list[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in (median(values), min(values), max(values))]


def engine_against_bare(workload: Workload, repeats: int) -> dict[str, Any]:
    """One worker against the bare loop."""
    sides = {"bare": bare_rounds(workload)}
    for name, method in METHODS.items():
        sides[name], _ = engine_rounds(workload, method)
    return summary(in_turn(sides, repeats), "bare")


def precisions(workload: Workload, repeats: int) -> dict[str, Any]:
    """bfloat16 autocast against float32."""
    sides = {p: engine_rounds(workload, METHODS["fedavg"], precision=p)[0] for p in ("float32", "bfloat16")}
    return summary(in_turn(sides, repeats), "float32")


def layouts(workload: Workload, repeats: int) -> dict[str, Any]:
    """Both precisions, images laid out channels first and last."""
    sides = {
        f"{precision}{', channels last' if last else ''}": engine_rounds(
            workload, METHODS["fedavg"], precision=precision, channels_last=last
        )[0]
        for precision in ("float32", "bfloat16")
        for last in (False, True)
    }
    return summary(in_turn(sides, repeats), "float32")


def compiled(workload: Workload, repeats: int) -> dict[str, Any]:
    """Ten steps' gradients with ``torch.compile`` against without, and the seconds that compiling takes."""
    inputs, labels = workload.data(0)
    inputs, labels = inputs[: workload.batch], labels[: workload.batch]
    sides: dict[str, Callable[[], None]] = {}
    for name in ("eager", "compiled"):
        module = workload.module()
        forward = torch.compile(module) if name == "compiled" else module

        def steps(module: torch.nn.Module = module, forward: Callable[[Tensor], Tensor] = forward) -> None:
            for _ in range(10):
                loss = torch.nn.functional.cross_entropy(forward(inputs), labels)
                torch.autograd.grad(loss, list(module.parameters()))

        sides[name] = steps
    watch = stopwatch()
    sides["compiled"]()
    first = watch()["wall"]
    return summary(in_turn(sides, repeats), "eager") | {"first_call_seconds": first}


def workers(workload: Workload, repeats: int) -> dict[str, Any]:
    """Two workers against one, and what the machine itself gives: two bare loops at once against one after the other.

    Only the wall clock counts, as the workers are other processes.
    """
    one, _ = engine_rounds(workload, METHODS["fedfibos"])
    two, close = engine_rounds(workload, METHODS["fedfibos"], workers=2)
    bare = bare_rounds(workload)
    helper = BareProcess(workload)

    def both() -> None:
        helper.start()
        bare()
        helper.wait()

    def one_by_one() -> None:
        bare()
        bare()

    try:
        times = in_turn({"one": one, "two": two, "bare, one by one": one_by_one, "bare, at once": both}, repeats)
    finally:
        close()
        helper.close()
    walls = {side: [{"wall": s["wall"]} for s in samples] for side, samples in times.items()}
    engine, machine = (
        {side: walls[side] for side in pair} for pair in (("one", "two"), ("bare, one by one", "bare, at once"))
    )
    return summary(engine, "one") | summary(machine, "bare, one by one")


class BareProcess:
    """A second process with the bare loop, a round at a time."""

    def __init__(self, workload: Workload) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=_serve_bare, args=(workload, theirs), daemon=True)
        self.process.start()

    def start(self) -> None:
        """Begin a round."""
        self.pipe.send(True)

    def wait(self) -> None:
        """Until it is done."""
        self.pipe.recv()

    def close(self) -> None:
        """End the process."""
        self.pipe.send(False)
        self.process.join()


def _serve_bare(workload: Workload, pipe: Connection) -> None:
    run = bare_rounds(workload)
    while pipe.recv():
        run()
        pipe.send(True)
