"""One Flower message to a fresh client process, and what it took: the other half of device_memory.py."""

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
import flwr.supernode.runtime.run_clientapp  # noqa: F401 (what Flower starts for every message)
from flwr.app import Context, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse, PushObjectRequest
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects
from flwr.supercore.task_identity import TaskIdentity

from fedfibos.flower.client_app import client_app
from fedfibos.flower.messages import payload_in
from fedfibos.flower.task import task_of
from fedfibos.models import build

with_imports, seconds = peak(), time.perf_counter() - began
folder, case = Path(sys.argv[1]), json.loads(sys.argv[2])
shape = tuple(case["shape"])


class Images:
    labels = torch.arange(100) % 10
    first = None

    def __len__(self):
        return 100

    def batch(self, indices, augment=None):
        Images.first = Images.first or time.perf_counter()
        return torch.ones(len(indices), *shape)

    def subset(self, indices):
        return self


def task(config):
    module = build(case["model"], num_classes=10, input_shape=shape, **case.get("options", {}))
    return task_of(module, config, example=torch.zeros(2, *shape))


def pulled(name):
    """A piece of the message as it comes from the SuperNode."""
    return PullObjectResponse.FromString((folder / name).read_bytes()).object_content


def pushed(name, content):
    """A piece of the answer as it goes to the SuperNode."""
    return PushObjectRequest(object_id=name, object_content=content).SerializeToString()


app = client_app(task, lambda context: Images())
TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
tree = ObjectTree.FromString((folder / "tree").read_bytes())
began = time.perf_counter()
message = pull_and_inflate_object_from_tree(tree, pulled, lambda name: None, return_type=Message)
message.metadata.__dict__["_message_id"] = "1"
reply = app(message, Context(1, 1, {"client-id": 0, **case.get("node", {})}, RecordDict(), case["config"]))
if message.metadata.message_type == "train":
    payload_in(reply)
reply.metadata.__dict__["_message_id"] = reply.object_id
push_objects(get_all_nested_objects(reply), pushed)
about = reply.content.get("about")
print(
    json.dumps(
        {
            "torch_mib": round(with_torch, 1),
            "imports_mib": round(with_imports - with_torch, 1),
            "import_seconds": round(seconds, 2),
            "peak_mib": round(peak(), 1),
            "peak_above_imports_mib": round(peak() - with_imports, 1),
            "seconds_to_first_batch": round((Images.first or began) - began, 3),
            "seconds": round(time.perf_counter() - began, 2),
            "compiler": "torch._dynamo" in sys.modules,
            "modules": [name for name in sys.modules if name.startswith("fedfibos.")],
            "said": None if about is None else {key: about[key] for key in about},
        }
    )
)
