"""Check and measure the CUDA engine: ``python benchmarks/gpu.py --out FOLDER [--data-dir DIR] [--seconds S]``.

In this order, each in a process of its own (what a GPU stumbles over can end a process), each written to
``FOLDER/gpu.json`` as it is known, so that a cut-off run leaves what it found; a piece that fails leaves its last
lines, and the next one runs:

1. floor: the measured rate of bfloat16 matrix products and the memory's bandwidth, and what they make of the paper's
   CIFAR-10 run (ResNet-18, 800 rounds of 10 clients, 100 steps of batch 20).
2. equality: two rounds of every method on the device against the CPU engine, in float32 without TF32; and clients side
   by side, their steps recorded, against the same clients one after another, launched kernel by kernel: the same bytes?
3. selection: exact top-k of 11.2 million scores against ``torch.topk``.
4. simulations: three rounds of every kind of method through ``simulate``, twice, plain and recorded: the same bytes?
5. step, kernels: one ResNet-18 step as the engine makes it: what recording it costs the processor, what replaying it
   costs the device, alone and side by side, and which kernels take the time.
6. engine: seconds a round of the paper's setting, recorded and overlapped against eager and in turn.
7. training: as many rounds of the paper's setting as the seconds allow, FedFIbOS first, then FIARSE, into a folder that
   ``fedfibos sweep`` goes on with (``--runs``); their records, without checkpoints, are packed into
   ``FOLDER/runs.tar.gz``. Without a data folder this step is left out.

``--only`` runs some pieces alone: ``--only training --data-dir DIR`` in a second call on the same machine.
``--device cpu`` runs the same on a CPU, for testing the script.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from selection import SIZE

from fedfibos.analysis.cost import forward_macs
from fedfibos.backend.determinism import reproducible
from fedfibos.backend.topk import top_k
from fedfibos.config.experiment import load_experiment
from fedfibos.config.study import load_study
from fedfibos.data.images import ImageData
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.round import federated_round
from fedfibos.runs.environment import describe
from fedfibos.simulation import Interrupted, simulate
from fedfibos.simulation.overlapped import AT_A_TIME, Overlapped
from fedfibos.simulation.setting import Setting
from fedfibos.simulation.sweep import SweepProgress, run_study
from fedfibos.simulation.workers import InProcess
from fedfibos.submodel import full
from fedfibos.training import LocalTraining
from fedfibos.types import Client

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # as the command line does, before the driver starts

EXPERIMENTS = Path(__file__).parent.parent / "experiments"
STUDY = EXPERIMENTS / "paper" / "cifar10.toml"
CAPACITIES = (1.0, 0.5, 0.25, 0.125, 0.0625)
TOLERANCE = 2e-3
"""Largest difference of a parameter after two rounds, relative to the largest change of any: other kernels, other
orders of summation, fifty steps of each of five clients."""

RANKED, RANKED_TOLERANCE = ("fiarse", "fedfibos"), 5e-2
"""Methods that choose coordinates by rank, where rounding changes a choice here and there; for all but a thousandth.
On one processor with other kernels the second round of FedFIbOS differs by .02."""

MOST_SECONDS = {
    "floor": 60,
    "equality": 150,
    "selection": 45,
    "simulations": 150,
    "step": 90,
    "kernels": 60,
    "engine": 150,
}
"""What a piece may take at most, so that one that hangs leaves time for the others."""


def images(count: int, seed: int) -> ImageData:
    """Noise in the shape of CIFAR-10: speed and equality do not depend on what it shows."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, 3, 32, 32), generator=generator).to(torch.uint8)
    labels = torch.randint(10, (count,), generator=generator)
    return ImageData(pixels, labels, (0.5,) * 3, (0.25,) * 3, crop_and_flip=True)


def seconds(device: torch.device, run: Callable[[], object], repeats: int) -> float:
    """Median seconds, the device's work included."""
    times = []
    for _ in range(repeats + 1):
        _wait(device)
        start = time.perf_counter()
        run()
        _wait(device)
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[repeats // 2]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def floor(device: torch.device, tiny: bool) -> dict[str, Any]:
    """Operations over the measured rate, bytes over the measured bandwidth, for the paper's run."""
    n = 512 if tiny else 8192
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16)
    rate = 2 * n**3 / seconds(device, lambda: a @ a, 10)
    flat = torch.randn(n * n, device=device)
    bandwidth = 2 * flat.nbytes / seconds(device, lambda: flat.clone(), 10)
    model = model_of(build("resnet18", 10, (3, 32, 32), norm="batch", seed=0))
    params = model.initial_params()
    macs = forward_macs(model, params, full(model.layout), images(2, 0))
    steps, batch = 800 * 10 * 100, 20
    operations = 3 * 2 * macs * steps * batch  # the backward pass costs two forward passes
    # A step reads weights three times (forward, backward, update), writes and reads gradients, writes weights, and adds
    # the squared gradients (two passes) and the mask (one): nine passes over float32.
    traffic = 9 * 4 * model.layout.size * steps
    return {
        "bf16_tflops": rate / 1e12,
        "bandwidth_GBs": bandwidth / 1e9,
        "forward_macs": macs,
        "operations_seconds": operations / rate,
        "bytes_seconds": traffic / bandwidth,
        "floor_seconds": operations / rate + traffic / bandwidth,
    }


def equality(device: torch.device) -> dict[str, Any]:
    """Differences of the parameters after two rounds, by method."""
    against_cpu: dict[str, Any] = {}
    same_bytes: dict[str, Any] = {}
    recordings.clear()
    for name in METHODS:
        try:
            alone, pairs, side_by_side = (trained(name, device, width) for width in (1, 2, AT_A_TIME))
            same_bytes[name] = bool(torch.equal(alone, pairs) and torch.equal(alone, side_by_side))
            against_cpu[name] = _difference(trained(name, torch.device("cpu"), 1), side_by_side)
        except Exception:
            against_cpu[name] = traceback.format_exc(limit=-4)
    within = {
        name: isinstance(found, dict)
        and (found["all but 0.001"] <= RANKED_TOLERANCE if name in RANKED else found["largest"] <= TOLERANCE)
        for name, found in against_cpu.items()
    }
    return {
        "relative to the CPU": against_cpu,
        "tolerance": TOLERANCE,
        f"tolerance of {' and '.join(RANKED)}": RANKED_TOLERANCE,
        "within": within,
        "side by side and recorded = in turn and eager": same_bytes,
        "recordings kept, failed": recordings,
    }


recordings: list[tuple[int, bool]] = []
"""Of every workspace of every lane that trained: recordings that it keeps, and whether one failed; none on a CPU."""


def _note_recordings(engine: Overlapped) -> None:
    for lane in engine.lanes:
        for space in lane.setting.model._workspaces.values():
            if space.recorder is not None:
                recordings.append((len(space.recorder.kept), space.recorder.failed))


def trained(name: str, device: torch.device, width: int) -> torch.Tensor:
    """The change of the parameters in two rounds, on the CPU; in turn and eager where ``width`` is 1."""
    model = model_of(
        build("cnn", 10, (3, 32, 32), norm="batch", seed=0, channels=(16, 32)),
        example=torch.zeros(2, 3, 32, 32),
        device=device,
    )
    data = [images(60, n).to(device) for n in range(5)]
    setting = Setting(METHODS[name](), model, data.__getitem__, data[0], data[1], 100)
    engine: InProcess | Overlapped = InProcess(setting) if width == 1 else Overlapped(setting, width)
    end = rounds(setting, engine, 2, LocalTraining(steps=25, batch_size=20, lr=0.05)).cpu()
    if isinstance(engine, Overlapped):
        _note_recordings(engine)
    return end - model.initial_params().flat.cpu()


def _difference(one: torch.Tensor, other: torch.Tensor) -> dict[str, float]:
    """Of two changes, relative to the largest."""
    relative = (one - other).abs() / one.abs().max()
    return {"largest": float(relative.max()), "all but 0.001": float(relative.quantile(0.999))}


def rounds(setting: Setting, engine: InProcess | Overlapped, count: int, local: LocalTraining) -> torch.Tensor:
    """The flat parameters after some rounds of clients 0 to 4 (or 9, where the data has ten)."""
    model, method = setting.model, setting.method
    params = model.initial_params()
    params = replace(params, flat=params.flat.to(model.device))
    state = method.init(params)
    for t in range(count):
        cohort = [Client(n, CAPACITIES[n % 5], t, 0, local) for n in range(5)]
        state, params, report = federated_round(method, model, state, params, cohort, engine.train)
        assert not report.rejected, report.rejected
    return params.flat


def selection(device: torch.device, tiny: bool) -> dict[str, Any]:
    """Seconds of both, and whether they agree."""
    scores = torch.randn(SIZE // 100 if tiny else SIZE, device=device).square()
    k = len(scores) // 16
    same = int(top_k(scores, k).sum()) == k and bool(scores[top_k(scores, k)].min() == torch.topk(scores, k)[0][-1])
    return {
        "torch.topk": seconds(device, lambda: torch.topk(scores, k), 10),
        "top_k": seconds(device, lambda: top_k(scores, k), 10),
        "same": same,
    }


SIMULATIONS = {
    "fedavg, narrow": ["method.name='fedavg'", "method.capacity=0.5"],
    "heterofl": ["method.name='heterofl'"],
    "fedrolex": ["method.name='fedrolex'"],
    "fedbrb": ["method.name='fedbrb'"],
    "fiarse": ["method.name='fiarse'", "local.momentum=0.9", "local.weight_decay=0.001"],
    "fedfibos": ["method.name='fedfibos'"],
    "algorithm1": ["method.name='fedfibos'", "method.preset='algorithm1'"],
    "algorithm1, disk": ["method.name='fedfibos'", "method.preset='algorithm1'", "run.score_home='disk'"],
    "per example": ["method.name='fedfibos'", "method.fisher_from='per_example'", "model.norm='group'"],
    "adamw, bfloat16, channels last": [
        "method.name='fedfibos'",
        "model.channels_last=true",
        "local={steps=5,batch_size=8,lr=0.01,optimizer='adamw',clip_norm=1.0,absent_labels='mask',precision='bfloat16'}",
    ],
}


def simulations(device: torch.device) -> dict[str, Any]:
    """Whether a run repeated gives the same parameters to the bit; a traceback where it does not run."""
    base = [
        "model={name='cnn',norm='batch',options={channels=[8,16]}}",
        "federation={rounds=3,clients=20,cohort=5,capacities='uniform'}",
        "local={steps=5,batch_size=8,lr=0.05}",
        "data.partition={scheme='pathological',classes_per_client=2}",
        "evaluation.every=1",
    ]
    found: dict[str, Any] = {}
    for (name, overrides), graphs in product(SIMULATIONS.items(), (False, True)):
        how = ", recorded" if graphs else ""
        more = [*overrides, f"run.cuda_graphs={str(graphs).lower()}"]
        experiment = load_experiment(EXPERIMENTS / "digits" / "fedavg.toml", [*base, *more])
        try:
            with tempfile.TemporaryDirectory() as folder:
                ends = [
                    simulate(experiment, Path(folder, run), workers=1, device=str(device))["params_sha256"]
                    for run in ("first", "second")
                ]
            found[name + how] = ends[0] == ends[1]
        except Exception:
            found[name + how] = traceback.format_exc(limit=-4)
    return found


def step(device: torch.device, tiny: bool) -> dict[str, Any]:
    """Milliseconds of one step: of the processor to launch, record and replay it, of the device to run it."""
    found: dict[str, Any] = {}
    for label, last in (("channels last", True), ("channels first", False)):
        lanes = [_recorded_step(device, tiny, last) for _ in range(1 if tiny else AT_A_TIME)]
        found[label] = {"processor": lanes[-1][1]}
        for width in {1, len(lanes) // 2 or 1, len(lanes)}:

            def run(width: int = width, lanes: list[Any] = lanes) -> None:
                for _ in range(50):
                    for replay, _, stream, _ in lanes[:width]:
                        with torch.cuda.stream(stream) if stream is not None else nullcontext():
                            replay()

            found[label][f"{width} side by side"] = seconds(device, run, 3) / 50 / width * 1e3
    return found


def kernels(device: torch.device) -> dict[str, Any]:
    """The kernels of one step, channels last; nothing on a CPU."""
    replay, _, _, step = _recorded_step(device, device.type == "cpu", True)
    found = _kernels(replay) if device.type == "cuda" else {}
    del step
    return found


def _recorded_step(
    device: torch.device, tiny: bool, last: bool
) -> tuple[Callable[[], None], dict[str, float], Any, Callable[[], None]]:
    """A step of FedFIbOS in a workspace of its own: its replay, milliseconds of the processor, its stream, the step.

    A recording holds addresses, not tensors: whoever replays it keeps the step, and with it what it works on.
    """
    model = model_of(
        build("resnet8" if tiny else "resnet18", 10, (3, 32, 32), norm="batch", seed=0),
        device=device,
        channels_last=last,
    )
    model = model.with_own_workspaces(recorded=True)
    space = model.workspace(full(model.layout))
    module = space.load(model.initial_params().flat.to(device)).train()
    inputs, labels = model.place(torch.randn(20, 3, 32, 32)), torch.randint(10, (20,)).to(device)
    masks = model.layout.views((torch.rand(model.layout.size) < 0.5).float().to(device))
    values, squares = model.layout.views(space.values), model.layout.views(torch.zeros_like(space.values))

    def once() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(module(inputs).float(), labels)
        gradients = torch.autograd.grad(loss, space.parameters)
        torch._foreach_addcmul_(squares, gradients, gradients)
        torch._foreach_addcmul_(values, gradients, masks, value=-0.01)

    took: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        _wait(device)
        start = time.perf_counter()
        result = work()
        took[name] = (time.perf_counter() - start) * 1e3
        return result

    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    if stream is not None:
        stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream) if stream is not None else nullcontext():
        once()
        timed("launch", once)
        replay = timed("record", lambda: space.recorder(once) if space.recorder else once)
        replay()
        timed("replay", replay)
    return replay, took, stream, once


def _kernels(replay: Callable[[], None]) -> dict[str, Any]:
    """The kernels of one step: how many, their time, the thirty that take longest."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            replay()
        torch.cuda.synchronize()
    rows = [row for row in profile.key_averages() if row.device_time_total > 0]  # others are calls of the driver
    rows.sort(key=lambda row: -row.device_time_total)
    return {
        "kernels": sum(row.count for row in rows) / 5,
        "kernels_us": sum(row.device_time_total for row in rows) / 5,
        "longest": [
            f"{row.count / 5:g} x {row.device_time_total / row.count:.1f} us {row.key[:100]}" for row in rows[:30]
        ],
    }


def engine(device: torch.device, tiny: bool) -> dict[str, Any]:
    """Seconds a round of ten clients, ResNet-18 with batch normalisation, FedFIbOS; four ways of running them."""
    found: dict[str, Any] = {}
    local = LocalTraining(steps=2 if tiny else 100, batch_size=20, lr=0.1, precision="bfloat16")
    name = "resnet8" if tiny else "resnet18"
    data = [images(500, n).to(device) for n in range(10)]
    for label, width, recorded, last in (
        ("side by side, recorded, channels last", AT_A_TIME, True, True),
        ("side by side, recorded", AT_A_TIME, True, False),
        ("in turn, recorded, channels last", 1, True, True),
        ("in turn, eager, channels last", 1, False, True),
    ):
        module = build(name, 10, (3, 32, 32), norm="batch", seed=0)
        model = model_of(module, device=device, channels_last=last)
        setting = Setting(METHODS["fedfibos"](), model, data.__getitem__, data[0], data[1], 500)
        side_by_side = Overlapped(setting, width)
        params = model.initial_params()
        params = replace(params, flat=params.flat.to(device))
        state = setting.method.init(params)
        if not recorded:
            for lane in side_by_side.lanes:
                lane.setting.model.workspace(full(model.layout)).recorder = None

        def run(setting=setting, state=state, params=params, side_by_side=side_by_side) -> None:
            cohort = [Client(n, CAPACITIES[n % 5], 0, 0, local) for n in range(10)]
            federated_round(setting.method, setting.model, state, params, cohort, side_by_side.train)

        found[label] = seconds(device, run, 3 if width > 1 else 1)
        _note_recordings(side_by_side)
        side_by_side.close()
    return {**found, "recordings kept, failed": recordings}


class Until(SweepProgress):
    """Says how far a run is, and interrupts it at a moment: it writes a checkpoint and stops."""

    def __init__(self, moment: float) -> None:
        self.moment = moment

    def start(self, run: Any, resumed: bool) -> Callable[[Any], None]:
        """See :class:`fedfibos.simulation.sweep.SweepProgress`."""

        def note(record: Any) -> None:
            if "evaluation" in record:
                print(run.folder, record["round"], record["evaluation"]["global"]["full"], flush=True)
            if time.time() > self.moment:
                os.kill(os.getpid(), signal.SIGINT)

        return note

    def warn(self, text: str) -> None:
        """See :class:`fedfibos.simulation.sweep.SweepProgress`."""
        print("warning:", text, flush=True)


def training(device: torch.device, runs: Path, data_dir: Path, moment: float, tiny: bool) -> dict[str, Any]:
    """The paper's CIFAR-10 runs, two classes a client, non-uniform, method after method, until some moment."""
    overrides = ["local.precision=bfloat16", "model.channels_last=true", "evaluation.every=20", "run.score_home=memory"]
    if tiny:
        overrides += ["model.name=lenet", "local.steps=1", "federation.rounds=2", "evaluation.every=2"]
    found: dict[str, Any] = {}
    for left, method in ((2, "fedfibos"), (1, "fiarse")):
        study = load_study(STUDY, overrides, ["split=high", "mix=non-uniform", "seed=0", f"method={method}"])
        start = time.time()
        try:
            until = Until(start + (moment - start) / left)
            (outcome,) = run_study(study, runs, until, device=str(device), data_dir=data_dir)
            found[method] = outcome.reason or outcome.state
        except Interrupted as stopped:
            found[method] = str(stopped)
        found[f"{method}, seconds"] = time.time() - start
    return found


def pack(runs: Path, target: Path) -> None:
    """The records of the runs, without their checkpoints, in one file."""
    with tarfile.open(target, "w:gz") as archive:
        for name in ("config.toml", "environment.json", "rounds.jsonl", "final.json"):
            for path in sorted(runs.rglob(name)):
                archive.add(path, path.relative_to(runs))


def in_a_process(piece: str, arguments: Sequence[str], timeout: float) -> Any:
    """What a piece found, or the last it said before it ended."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = [sys.executable, __file__, *arguments, "--piece", piece, "--result", str(result)]
        try:
            done = subprocess.run(command, timeout=max(timeout, 1.0), stderr=subprocess.PIPE, text=True)
        except subprocess.TimeoutExpired as late:
            said = late.stderr.decode() if isinstance(late.stderr, bytes) else late.stderr or ""
            return f"not done within {timeout:.0f} s {said[-4000:]}"
        if result.is_file():
            return {**json.loads(result.read_text()), **({"said": done.stderr[-4000:]} if done.stderr else {})}
        return done.stderr[-4000:] or f"exit code {done.returncode}"


def main() -> None:
    """Run everything, in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--seconds", type=float, default=480.0, help="for everything; training takes what is left")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", help="pieces to run; default: all")
    parser.add_argument("--moment", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--piece", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    tiny = device.type == "cpu"
    pieces: dict[str, Callable[[], dict[str, Any]]] = {
        "floor": lambda: floor(device, tiny),
        "equality": lambda: equality(device),
        "selection": lambda: selection(device, tiny),
        "simulations": lambda: simulations(device),
        "step": lambda: step(device, tiny),
        "kernels": lambda: kernels(device),
        "engine": lambda: engine(device, tiny),
        "training": lambda: training(device, arguments.runs, arguments.data_dir, arguments.moment, tiny),
    }
    if arguments.piece:
        with reproducible():
            arguments.result.write_text(json.dumps(pieces[arguments.piece]()))
        return
    moment = time.time() + arguments.seconds
    arguments.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"made": describe(arguments.device, ["benchmarks/gpu.py"])}
    if device.type == "cuda":
        found["card"] = torch.cuda.get_device_name(device)
    for name in arguments.only or pieces:
        if name == "training" and arguments.data_dir is None:
            continue
        start = time.time()
        spare = 30.0 if name == "training" else 0.0  # for its last checkpoint
        given = [*sys.argv[1:], "--moment", str(moment - spare)]
        found[name] = in_a_process(name, given, min(moment - start, MOST_SECONDS.get(name, math.inf)))
        print(f"{time.time() - start:.1f} s", name, json.dumps(found[name]), flush=True)
        (arguments.out / "gpu.json").write_text(json.dumps(found, indent=1) + "\n")
    if arguments.data_dir is not None:
        pack(arguments.runs, arguments.out / "runs.tar.gz")


if __name__ == "__main__":
    main()
