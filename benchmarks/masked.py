"""A FIARSE round by its authors' code, by ours, and the bare loop: the same model, clients, sizes, steps and batches.

Their code is fetched into a cache outside the checkout and driven as it is: its server's loop with its ResNet-18
(batch normalisation without running statistics), evaluation left out.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from engine import bare_rounds, summary
from torch.utils.data import DataLoader, TensorDataset
from workloads import CAPACITIES, LR, WORKLOADS, stopwatch

from fedfibos.data.images import TensorData
from fedfibos.method import Method
from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.methods.fiarse import FIARSE, PRESETS
from fedfibos.model import model_of
from fedfibos.round import federated_round
from fedfibos.simulation.setting import Setting
from fedfibos.simulation.workers import InProcess
from fedfibos.training import LocalTraining
from fedfibos.types import Client

REPOSITORY, COMMIT = "https://github.com/HarliWu/FIARSE", "281519c6fb9ac4846fb0098fb6db4ff41849271b"
WORKLOAD = replace(WORKLOADS["resnet18"], clients=5, options={"norm": "batch"})
METHODS: dict[str, Method] = {
    "fiarse, as released": FIARSE(**PRESETS["released"]),
    "fiarse, as in its paper": FIARSE(**PRESETS["paper"]),
    "fedfibos": FedFIbOS(),
}


def source() -> Path:
    """Their code, fetched on first use.

    Raises:
        subprocess.CalledProcessError: It cannot be fetched.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedfibos" / "bench" / "fiarse"
    if not folder.exists():
        subprocess.run(["git", "clone", "-q", REPOSITORY, str(folder)], check=True, capture_output=True, text=True)
    subprocess.run(["git", "-C", str(folder), "checkout", "-q", COMMIT], check=True, capture_output=True, text=True)
    return folder / "fiarse"


def our_rounds(method: Method) -> Callable[[], None]:
    """Run the next round of a method."""
    model = model_of(WORKLOAD.module())
    data = [TensorData(*WORKLOAD.data(n)) for n in range(WORKLOAD.clients)]
    engine = InProcess(Setting(method, model, data.__getitem__, data[0], None, 100))
    local = LocalTraining(epochs=1, batch_size=WORKLOAD.batch, lr=LR)
    params = model.initial_params()
    state, t = method.init(params), 0

    def run() -> None:
        nonlocal state, params, t
        cohort = [Client(n, CAPACITIES[n], t, 0, local) for n in range(WORKLOAD.clients)]
        state, params, _ = federated_round(method, model, state, params, cohort, engine.train)
        t += 1

    return run


class Enough(Exception):
    """All turns are timed: their loop has no other end."""


def masked_round(repeats: int) -> dict[str, Any]:
    """Seconds of a round of five clients, every side in turn, and ratios to the bare loop."""
    try:
        code = source()
    except (OSError, subprocess.CalledProcessError) as error:
        return {"skipped": f"FIARSE's code could not be fetched: {error}"}
    sys.path[:0] = [str(code), str(code / "model")]
    with contextlib.redirect_stdout(io.StringIO()):
        times = _in_turn(repeats)
    return summary({side: samples[1:] for side, samples in times.items()}, "bare")


def _in_turn(repeats: int) -> dict[str, list[dict[str, float]]]:
    from model_utils import MaskedBatchNorm_no_tracking
    from resnet_masked import BetaResNet, MaskedBasicBlock
    from worker import Worker

    from server import Server

    sides = {"bare": bare_rounds(WORKLOAD), **{name: our_rounds(method) for name, method in METHODS.items()}}
    theirs = "fiarse, its authors' code"
    times: dict[str, list[dict[str, float]]] = {side: [] for side in (*sides, theirs)}
    calls = 0
    watch = stopwatch()

    class Timed(Worker):  # type: ignore[misc]
        """Between two of their rounds, the others have their turns."""

        def local_training(self, model: Any, model_size: float) -> Any:
            nonlocal calls, watch
            if calls and calls % WORKLOAD.clients == 0:
                times[theirs].append(watch())
                for side, run in sides.items():
                    watch = stopwatch()
                    run()
                    times[side].append(watch())
                if len(times[theirs]) > repeats:
                    raise Enough
                watch = stopwatch()
            calls += 1
            return super().local_training(model, model_size)

    def worker(n: int) -> Any:
        one = Timed.__new__(Timed)
        loader = DataLoader(TensorDataset(*WORKLOAD.data(n)), batch_size=WORKLOAD.batch, shuffle=True)
        one.rank, one.gpu, one.lr, one.train_data_loader = n + 1, torch.device("cpu"), LR, loader
        one.local_updates_args = {"epochs": 1}
        return one

    server = Server.__new__(Server)
    server.model = BetaResNet(MaskedBasicBlock, [2, 2, 2, 2], n_class=10, norm_layer=MaskedBatchNorm_no_tracking)
    server.eval, server.test = lambda sizes: None, lambda model: (0.0, 0.0, 0, 1)
    server.args = Namespace(
        model_size=[str(capacity) for capacity in CAPACITIES],
        model_dist=["1"] * WORKLOAD.clients,
        num_part=WORKLOAD.clients,
        T=10**6,
        save_freq=10**6,
        lr_global=1.0,
    )
    workers = [worker(n) for n in range(WORKLOAD.clients)]
    for one in workers:
        one.test = lambda model: (0.0, 0.0, 0, 1)
    with contextlib.suppress(Enough):
        server.simulation_exp(workers)
    return times
