"""Peak memory of keeping per-client scores of RoBERTa-base's size, by the operating system's account of the process.

The process holds the global parameters, the prior and one client's statistic at a time; for every client it selects
the submodel and changes the score, as FedFIbOS does with ``sharing = "client"``. Nobody trains.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from workloads import CAPACITIES, stopwatch

from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.model import Model
from fedfibos.params import Layout, Params
from fedfibos.scores.files import Bytes, FileRows
from fedfibos.scores.rows import MemoryRows
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Upload

SIZE = 124_600_000


def server(home: str, num_clients: int, participations: int, folder: Path, score_bytes: Bytes = 4) -> dict[str, Any]:
    """Clients take part one after another, and again from the first.

    Args:
        home: ``memory``, ``disk`` or ``client``. With ``client`` the server is sent masks and keeps no score.
        num_clients: Number of clients.
        participations: Of all clients together.
        folder: Where the files go.
        score_bytes: Of a score in a file.
    """
    layout = Layout(("weight",), ((SIZE,),), 1)
    params = Params(layout, torch.randn(SIZE))
    method, local = FedFIbOS(sharing="client"), LocalTraining()
    model = Model(torch.nn.Identity(), layout)
    state = method.init(params)
    rows = MemoryRows() if home == "memory" else FileRows(folder, score_bytes=score_bytes)
    watch = stopwatch()
    for done in range(participations):
        turn, n = divmod(done, num_clients)
        client = Client(n, CAPACITIES[n % 4 + 1], turn, 0, local)
        state = type(state)(state.tensors, rows)
        submodel = method.extract(model, state, params, client)
        statistic = torch.full((SIZE,), 1e-9 * (n + 1))
        upload = Upload(submodel, statistic[:0], 0.0, 1, statistic, "all")
        rows, old = method.update(state, client, upload).rows, rows
        del submodel, upload, statistic
        if isinstance(rows, FileRows) and isinstance(old, FileRows) and n in old.files:
            (folder / old.files[n].name).unlink()
    seconds = watch()["wall"]
    disk = sum(path.stat().st_size for path in folder.iterdir())
    return {
        "clients": num_clients,
        "scores": SIZE,
        "participations": participations,
        "peak_gib": peak_gib(),
        "disk_gb": round(disk / 1e9, 2),
        "seconds_per_client": round(seconds / participations, 2),
    }


def server_of_clients(num_clients: int) -> dict[str, Any]:
    """The server where clients keep their scores: it is sent a bitmap by each, and holds no score."""
    params = torch.randn(SIZE)
    total = 0
    for n in range(num_clients):
        bits = np.random.default_rng(n).integers(0, 256, SIZE // 8, dtype=np.uint8)  # what comes over the wire
        held = torch.from_numpy(np.unpackbits(bits)).to(torch.bool)
        total += int(held.count_nonzero())
    return {"clients": num_clients, "scores": params.numel(), "held": total, "peak_gib": peak_gib(), "disk_gb": 0.0}


def peak_gib() -> float:
    """Most resident memory that this process has had, in GiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)


def measured(home: str, num_clients: int, participations: int, score_bytes: Bytes = 4) -> dict[str, Any]:
    """:func:`server` in a temporary folder, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="fedfibos-homes-"))
    try:
        return server(home, num_clients, participations, folder, score_bytes)
    finally:
        shutil.rmtree(folder)
