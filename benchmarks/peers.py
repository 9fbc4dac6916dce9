"""pfl-research and Flower with Ray, each in an environment of its own outside the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
PEERS = {"pfl": ["pfl==0.6.0"], "flower": ["flwr[simulation]==1.42.*"]}
READS_MODELS = ["pyarrow", "Pillow", "scikit-learn", "safetensors", "pydantic"]
"""What importing ``fedfibos.models`` needs besides torch."""


KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**62), "MALLOC_TOP_PAD_": str(64 * 2**20)}
"""What ``fedfibos.backend.allocator`` sets, for processes without it: every side of every comparison keeps memory."""


def environment(peer: str) -> Path:
    """The interpreter of a peer's environment, made on first use.

    Raises:
        subprocess.CalledProcessError: It cannot be installed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedfibos" / "bench" / peer
    python = cache / "bin" / "python"
    if not (cache / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(cache)], check=True, capture_output=True, text=True)
        wanted = [f"torch=={torch.__version__.partition('+')[0]}", "numpy", *PEERS[peer], *READS_MODELS]
        subprocess.run([str(python), "-m", "pip", "install", "-q", *wanted], check=True, capture_output=True, text=True)
        (cache / "complete").touch()
    return python


def peer_times(peer: str, workload: str, repeats: int) -> dict[str, list[dict[str, float]]] | str:
    """Seconds of the peer's rounds and of the bare loop's, in turn in the peer's process; or why there are none."""
    try:
        python = environment(peer)
        paths = os.pathsep.join([str(HERE.parent / "src"), str(HERE)])
        settings = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
        done = subprocess.run(
            [str(python), str(HERE / f"peer_{peer}.py"), workload, str(repeats)],
            env=os.environ | settings | KEEP_FREED_MEMORY,
            capture_output=True,
            text=True,
            check=True,
            timeout=900,
        )
    except subprocess.CalledProcessError as error:
        return f"{peer} could not be run: " + (error.stderr or "no message").strip().splitlines()[-1]
    except subprocess.TimeoutExpired:
        return f"{peer} took more than 15 minutes"
    times: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1].removeprefix("RESULT "))
    return times
