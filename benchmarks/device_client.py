"""One Flower message to a fresh client process of ResNet-18, and what it took: the other half of device_memory.py."""

# ruff: noqa: E402, D101, D102, D103 (what is measured is what imports take, one after another)

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def peak() -> float:
    """MiB that were resident at most; getrusage's figure begins with that of the process that started this one."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


import torch

with_torch = peak()
began = time.perf_counter()
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedfibos.flower.client_app import client_app
from fedfibos.flower.messages import add_limit, add_outline, payload_in, payload_record
from fedfibos.flower.task import task_of
from fedfibos.models import build

with_imports, seconds = peak(), time.perf_counter() - began
folder, config, outline, node = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3] == "outline", json.loads(sys.argv[4])


class Images:
    labels = torch.arange(100) % 10
    first = None

    def __len__(self):
        return 100

    def batch(self, indices, augment=None):
        Images.first = Images.first or time.perf_counter()
        return torch.ones(len(indices), 3, 32, 32)

    def subset(self, indices):
        return self


def task(config):
    example = torch.zeros(2, 3, 32, 32)
    return task_of(build("resnet18", num_classes=10, input_shape=(3, 32, 32)), config, example=example)


app = client_app(task, lambda context: Images())
sent = Path(folder, "outline").read_bytes() if outline else None
TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
content = payload_record(Path(folder, "payload").read_bytes())
message = Message(add_outline(add_limit(content, 600.0), sent), dst_node_id=1, message_type="train")
message.metadata.__dict__["_message_id"] = "1"
began = time.perf_counter()
reply = app(message, Context(1, 1, node, RecordDict(), config))
payload_in(reply)
print(
    json.dumps(
        {
            "torch_mib": round(with_torch, 1),
            "imports_mib": round(with_imports - with_torch, 1),
            "import_seconds": round(seconds, 2),
            "peak_above_torch_mib": round(peak() - with_torch, 1),
            "peak_above_imports_mib": round(peak() - with_imports, 1),
            "seconds_to_first_batch": round(Images.first - began, 3),
            "seconds": round(time.perf_counter() - began, 2),
        }
    )
)
