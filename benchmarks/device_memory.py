"""What a client process takes, as the operating system counts it: one Flower message to a fresh process, ResNet-18.

python benchmarks/device_memory.py results/bench/device_memory.json
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CLIENT = Path(__file__).with_name("device_client.py")


def payload(folder: Path, capacity: float, config: dict[str, Any]) -> None:
    """Write a download of that capacity and the model's outline, as the server makes them."""
    import torch

    from fedfibos.flower.lean import SentOutline
    from fedfibos.flower.task import task_of
    from fedfibos.models import build
    from fedfibos.types import Client
    from fedfibos.wire.coding import encode_download

    module = build("resnet18", num_classes=10, input_shape=(3, 32, 32))
    task = task_of(module, config, example=torch.zeros(2, 3, 32, 32))
    params = task.model.initial_params()
    state = task.method.init(params)
    client = Client(0, capacity, 0, task.seed, task.local)
    submodel = task.method.extract(task.model, state, params, client)
    (folder / "payload").write_bytes(encode_download(client, submodel, params, task.model))
    sent = SentOutline(task)
    (folder / "outline").write_bytes(sent.at_enrolment(state, params) or b"")


def measured(folder: Path, config: dict[str, Any], node: dict[str, Any], outline: bool) -> dict[str, float]:
    """One fresh client process that answers that download."""
    arguments = [str(folder), json.dumps(config), "outline" if outline else "none", json.dumps(node)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(CLIENT), *arguments], stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(out: Path) -> None:
    """Measure and write down."""
    lines = []
    for method in ("fedfibos-channels", "heterofl"):
        config = {
            "method.name": method,
            "federation.rounds": 1,
            "federation.cohort": 1,
            "local.steps": 3,
            "local.batch_size": 20,
            "local.momentum": 0.9,
        }
        for capacity in (0.0625, 0.25):
            for outline in (True, False):
                with tempfile.TemporaryDirectory() as name:
                    payload(Path(name), capacity, config)
                    found = measured(Path(name), config, {"client-id": 0}, outline)
                lines.append({"method": method, "capacity": capacity, "outline": outline, **found})
                print(lines[-1], flush=True)
    about = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
    out.write_text(json.dumps({"about": about, "runs": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
