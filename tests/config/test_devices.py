"""Classes of devices in an experiment: units, dealing, and what is wrong with them."""

from __future__ import annotations

import pytest

from fedfibos.common.validation import ExperimentError
from fedfibos.config.devices import Device, clients_of
from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.config.settings import groups

FLEET = """
[[federation.devices]]
name = "gateway"
share = 0.3
memory = "1.5 GiB"
examples_per_second = 40
seconds = 20

[[federation.devices]]
name = "phone"
share = 0.7
memory = "200 MB"
macs_per_second = 2e9
seconds = 60
bytes = "20 MB"
"""


@pytest.fixture
def load(experiment_file):
    """``load(FLEET, "seed=1")``: ten clients with these devices, and overrides."""

    def of(fleet, *overrides):
        return load_experiment(experiment_file("federation.clients = 10\n" + fleet), overrides)

    return of


def test_units_are_read_and_written_out(load, tmp_path):
    experiment = load(FLEET)
    assert experiment.federation.devices == (
        Device("gateway", 0.3, memory=1_610_612_736, examples_per_second=40.0, seconds=20.0),
        Device("phone", 0.7, memory=200_000_000, macs_per_second=2e9, seconds=60.0, bytes=20_000_000),
    )
    assert experiment.federation.capacities == {}
    (tmp_path / "again.toml").write_text(to_toml(experiment))
    assert load_experiment(tmp_path / "again.toml") == experiment


def test_a_table_by_name_is_the_same_fleet(load):
    named = FLEET.replace('[[federation.devices]]\nname = "gateway"', "[federation.devices.gateway]")
    named = named.replace('[[federation.devices]]\nname = "phone"', "[federation.devices.phone]")
    assert load(named) == load(FLEET)


def test_without_devices_nothing_of_them_is_written(load):
    assert "devices" not in to_toml(load(""))
    assert load(FLEET, "federation.devices=[]") == load("")


def test_a_limit_of_a_class_that_is_not_there_names_the_nearest(load):
    assert load(FLEET, "federation.devices.phone.memory=3MB").federation.devices[1].memory == 3_000_000
    wanted = (
        r"^command line: a class of federation.devices must be one of 'gateway', 'phone', got 'phon'; "
        r"did you mean 'phone'\?$"
    )
    with pytest.raises(ExperimentError, match=wanted):
        load(FLEET, "federation.devices.phon.memory=3MB")


def test_every_share_gets_its_clients():
    thirds = tuple(Device(name, 1 / 3) for name in "abc")
    assert clients_of(thirds, 10) == (4, 3, 3)
    assert clients_of((Device("a", 0.29), Device("b", 0.71)), 100) == (29, 71)


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        (
            '[{name="a",share=1.0,memory="3 lots"}]',
            "federation.devices.a.memory: a number of bytes must be one such as",
        ),
        ('[{name="a",share=1.0,memroy=3}]', "a key of federation.devices.a must be one of .*; did you mean 'memory'"),
        ('[{name="a",share=1.0,memory=0}]', "federation.devices.a.memory must be at least 1, got 0"),
        ('[{name="a",share=1.0,bytes=true}]', "federation.devices.a.bytes must be an integer, got true"),
        ('[{name="a",share=0.0}]', "federation.devices.a.share must be above 0.0, got 0"),
        ('[{name="a",share=0.4},{name="b",share=0.4}]', "the shares of the devices must sum to 1, got 0.8"),
        ('[{name="a",share=0.5},{name="a",share=0.5}]', "devices must have different names, got 'a' twice"),
        ('[{name="a",share=0.99},{name="b",share=0.01}]', "got none for 'b': its share is 0.01 of 10 clients"),
        ("[{share=1.0}]", "federation.devices.0.name is missing"),
        ('[{name="",share=1.0}]', "name must be 1 to 24 printable characters"),
        ("[7]", "federation.devices.0 must be a table, got 7"),
        ("7", r"devices must be an array of tables, \[\[federation.devices\]\], got 7"),
        ('[{name="a",share=1.0,seconds=3}]', "'a' has seconds = 3 and no speed: give it macs_per_second or"),
        ('[{name="a",share=1.0,macs_per_second=1,examples_per_second=1}]', "or examples_per_second, got both"),
        ('[{name="a",share=1.0,macs_per_second=inf}]', "macs_per_second must be .*finite"),
    ],
)
def test_what_is_wrong_with_a_class_is_said_in_one_line(load, devices, said):
    with pytest.raises(ExperimentError, match=said) as raised:
        load(FLEET, f"federation.devices={devices}")
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("command line: ")


def test_devices_are_a_fixed_assignment_and_the_only_one(load):
    with pytest.raises(ExperimentError, match="devices need assignment = 'fixed', a client's device stays, got 'dyn"):
        load(FLEET, "federation.assignment=dynamic")
    with pytest.raises(ExperimentError, match="and so does assigned: leave one out"):
        load(FLEET, f"federation.assigned={[1.0] * 10}")


def test_their_settings_are_explained():
    (group,) = [group for group in groups() if group.title == "federation.devices"]
    assert [setting.key.rpartition(".")[2] for setting in group.settings] == [
        "name", "share", "memory", "macs_per_second", "examples_per_second", "seconds", "bytes",
    ]  # fmt: skip


@pytest.mark.parametrize("written", ["array", "tables"])
def test_an_override_may_set_some_limits_of_some_classes(tmp_path, written):
    """The others stay; classes that are given with their shares replace all of them."""
    file = tmp_path / "fleet.toml"
    base = 'method.name = "heterofl"\ndata.name = "digits"\nmodel.name = "mlp"\nlocal = { steps = 1, lr = 0.1 }\n'
    base += "[federation]\nclients = 4\ncohort = 2\nrounds = 1\n"
    rows = 'share = 0.5\nmemory = "2 MB"\n', "share = 0.5\nbytes = 7\n"
    heads = [
        f'[[federation.devices]]\nname = "{n}"\n' if written == "array" else f"[federation.devices.{n}]\n" for n in "ab"
    ]
    file.write_text(base + "".join(head + row for head, row in zip(heads, rows, strict=True)))
    a, b = load_experiment(
        file, ["federation.devices.a.memory=5 MB", "federation.devices.a.bytes=9"]
    ).federation.devices
    assert (a, b) == (Device("a", 0.5, memory=5_000_000, bytes=9), Device("b", 0.5, bytes=7))
    (only,) = load_experiment(file, ["federation.devices={a={share=1.0}}"]).federation.devices
    assert only == Device("a", 1.0)
    with pytest.raises(ExperimentError, match=r"a class of federation.devices must be one of 'a', 'b', got 'c'$"):
        load_experiment(file, ["federation.devices.c.memory=5 MB"])
