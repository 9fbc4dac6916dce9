"""What a client's process takes, as the operating system counts it, is at most what ``fedfibos methods`` says.

Fresh processes answer a message over the code that Flower runs for it, without the connection.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from device_memory import MIB, a_case, measured, predicted, put_down, task_in

from fedfibos.analysis.process_memory import after_imports

if not Path("/proc/self/status").exists():
    pytest.skip("only Linux says what was resident at most", allow_module_level=True)

MLP = {"model": "mlp", "shape": (1, 28, 28)}
LARGE = {**MLP, "options": {"hidden": [4000, 4000]}}


def compare(case, capacity):
    task = task_in(case)
    check(predicted(task, case, capacity) / MIB, measured(case, task, capacity)["peak_mib"])


def check(said, took):
    """What is said is an upper bound, and a close one."""
    assert took <= said <= 1.35 * took  # loosest where wide layers without convolutions are trained whole


@pytest.fixture(scope="module", autouse=True)
def imports():
    """Measured once in a process."""
    return after_imports() / MIB


def test_what_imports_take_is_measured_in_a_fresh_process(imports):
    assert 150 < imports < 500
    assert after_imports() == imports * MIB


def test_a_slice_of_a_small_model():
    """The server's modules are not imported: 2.5 MiB."""
    case = a_case("heterofl", **MLP)
    task = task_in(case)
    took = measured(case, task, 0.25)
    check(predicted(task, case, 0.25) / MIB, took["peak_mib"])
    servers = ("flower.serving", "flower.strategy", "flower.scores", "runs.checkpoint", "data.sources", "data.forms")
    assert "fedfibos.flower.server_app" in took["modules"]
    assert [name for name in took["modules"] if name.removeprefix("fedfibos.").startswith(servers)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "capacity"),
    [
        *[(a_case("heterofl"), capacity) for capacity in (0.0625, 0.25, 1.0)],
        (a_case("fedfibos-channels"), 0.0625),
        (a_case("heterofl", batch_size=128), 0.0625),
        (a_case("fedfibos"), 0.0625),
        (a_case("fedfibos"), 1.0),
        (a_case("fiarse"), 0.25),
        (a_case("fedavg", optimizer="adamw", momentum=0.0, batch_size=64), 1.0),
        (a_case("heterofl", "cnn", (3, 64, 64), batch_size=64), 0.25),
        (a_case("fedfibos", **MLP), 0.25),
        (a_case("heterofl", **LARGE), 0.0625),
        (a_case("heterofl", **LARGE), 1.0),
        (a_case("fedfibos", **LARGE), 0.25),
    ],
    ids=lambda value: (
        f"{value:g}" if isinstance(value, float) else f"{value['config']['method.name']} {value['model']}"
    ),
)
def test_slices_and_masks(case, capacity):
    compare(case, capacity)


@pytest.mark.slow
def test_a_slice_s_client_keeps_one_copy_of_what_it_was_sent(imports):
    """Above imports and torch's code of a step. With the pieces of the message 15 more."""
    case = a_case("heterofl")
    assert measured(case, task_in(case), 0.25)["peak_mib"] - imports <= 124


@pytest.mark.slow
@pytest.mark.parametrize(("method", "capacity"), [("heterofl", 0.0625), ("fedfibos", 0.0625)])
def test_a_device_that_declares_itself_takes_no_more(method, capacity):
    """It tries a step of its submodel; of a slice it has only the outline."""
    case = a_case(method)
    task = task_in(case)
    took = measured({**case, "node": {"capacity": capacity}}, task, None)
    assert took["said"]["capacity"] == capacity
    assert not took["compiler"]  # torch's, 50 MiB of it
    assert took["peak_mib"] <= predicted(task, case, capacity) / MIB


@pytest.mark.slow
def test_a_device_with_a_limit_keeps_to_it():
    """It takes the largest capacity whose figure is within the limit; where there is none, it says so."""
    case = a_case("heterofl")
    task = task_in(case)
    limit = predicted(task, case, 0.25) * 1.02
    took = measured({**case, "node": {"memory-limit": limit}}, task, None)
    assert took["said"]["capacity"] in (0.125, 0.25)
    assert took["peak_mib"] * MIB <= limit
    took = measured({**case, "node": {"memory-limit": "100MB"}}, task, None)
    assert took["said"]["refused"].startswith("no capacity down to 0.0625 keeps within memory-limit 100000000: ")


def test_the_servers_message_is_put_down_in_pieces(tmp_path):
    case = a_case("heterofl", **MLP)
    put_down(tmp_path, task_in(case), 0.25)
    assert len(list(tmp_path.iterdir())) > 3
    assert (tmp_path / "tree").stat().st_size > 0
