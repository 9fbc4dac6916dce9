"""What a client process takes, as the operating system counts it, beside what ``fedfibos methods`` says it takes.

One Flower message to a fresh process, pulled and pushed in pieces as Flower does, without the connection.

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

import torch
from flwr.app import Message
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity

from fedfibos.analysis.cost import cost
from fedfibos.data import TensorData
from fedfibos.flower.lean import SentOutline
from fedfibos.flower.messages import add_limit, add_outline, payload_record, who_are_you
from fedfibos.flower.task import Task, task_of
from fedfibos.models import build
from fedfibos.types import Client
from fedfibos.wire.coding import encode_download

CLIENT = Path(__file__).with_name("device_client.py")
MIB = 2**20

CASES = [
    *[(method, capacity, True) for method in ("heterofl", "fedfibos-channels") for capacity in (0.0625, 0.25, 1.0)],
    ("fedfibos", 0.0625, True),
    ("fiarse", 0.0625, True),
    ("fedavg", 1.0, True),
    ("heterofl", 0.0625, False),
    ("heterofl", 0.25, False),
]
"""Method, capacity, and whether the server's outline is sent with the download."""


def a_case(method: str, model: str = "resnet18", shape: tuple[int, ...] = (3, 32, 32), **local: Any) -> dict[str, Any]:
    """A model and how its clients train; ``options`` are the model's, all else is of ``local``."""
    config = {"method.name": method, "federation.rounds": 1, "federation.cohort": 1}
    options = local.pop("options", {})
    trained = {"steps": 3, "batch_size": 20, "momentum": 0.9, **local}
    config |= {f"local.{key}": value for key, value in trained.items()}
    return {"model": model, "shape": list(shape), "options": options, "config": config}


def task_in(case: dict[str, Any]) -> Task:
    """The server's task."""
    shape = tuple(case["shape"])
    module = build(case["model"], num_classes=10, input_shape=shape, **case["options"])
    return task_of(module, case["config"], example=torch.zeros(2, *shape))


def predicted(task: Task, case: dict[str, Any], capacity: float) -> int:
    """Bytes, as ``fedfibos methods`` prints them."""
    data = TensorData(torch.zeros(2, *case["shape"]), torch.tensor([0, 1]))
    return cost(task.method, task.model, capacity, data, task.local).memory


def put_down(folder: Path, task: Task, capacity: float | None, outline: bool = True) -> None:
    """Write the server's message in pieces: a download of that capacity, or without one the first question."""
    params = task.model.initial_params()
    state = task.method.init(params)
    sent = SentOutline(task).at_enrolment(state, params) if outline else None
    if capacity is None:
        content, kind = who_are_you(None), "query"
    else:
        client = Client(0, capacity, 0, task.seed, task.local)
        submodel = task.method.extract(task.model, state, params, client)
        content, kind = payload_record(encode_download(client, submodel, params, task.model)), "train"
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
    message = Message(add_outline(add_limit(content, 600.0), sent), dst_node_id=1, message_type=kind)
    message.metadata.__dict__["_message_id"] = message.object_id
    for name, each in get_all_nested_objects(message).items():
        response = PullObjectResponse(object_found=True, object_available=True, object_content=each.deflate())
        (folder / name).write_bytes(response.SerializeToString())
    (folder / "tree").write_bytes(get_object_tree(message).SerializeToString())


def measured(case: dict[str, Any], task: Task, capacity: float | None, outline: bool = True) -> dict[str, Any]:
    """One fresh client process that answers that message."""
    with tempfile.TemporaryDirectory() as name:
        put_down(Path(name), task, capacity, outline)
        done = subprocess.run(
            [sys.executable, str(CLIENT), name, json.dumps(case)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(out: Path) -> None:
    """Measure and write down."""
    lines: list[dict[str, Any]] = []
    for method, capacity, outline in CASES:
        case = a_case(method)
        task = task_in(case)
        found = measured(case, task, capacity, outline)
        del found["said"], found["compiler"], found["modules"]
        said = round(predicted(task, case, capacity) / MIB, 1) if outline else None
        lines.append({"method": method, "capacity": capacity, "outline": outline, "said_mib": said, **found})
        print(lines[-1], flush=True)
    about = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
    out.write_text(json.dumps({"about": about, "runs": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
