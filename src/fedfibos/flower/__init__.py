"""The same methods on real machines, over Flower: a strategy, a client app, and what they say to each other."""

import os

import lazy_loader

# Nothing leaves this machine that a run does not need. Flower reads these when it is first imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from fedfibos.common.extras import extra

with extra("flower"):
    import flwr  # noqa: F401 (told first, in a line, where it is missing)

from fedfibos.flower.client_app import client_app
from fedfibos.flower.server_app import server_app
from fedfibos.flower.task import FleetTask, task_of

# On first use: a device needs nothing of the server's.
__getattr__, _, _ = lazy_loader.attach(__name__, submod_attrs={"serving": ["serve"], "strategy": ["SubmodelStrategy"]})

__all__ = ["FleetTask", "SubmodelStrategy", "client_app", "serve", "server_app", "task_of"]
