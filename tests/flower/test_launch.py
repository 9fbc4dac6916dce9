"""Processes of a fleet on one machine."""

from __future__ import annotations

import pytest

from fedfibos.cli import main
from fedfibos.flower.launch import LaunchError, Processes, free_port


def test_an_interrupted_demo_says_so(monkeypatch, capsys):
    def interrupted(folder, secure):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedfibos.flower.demo.fleet", interrupted)
    assert main(["flower", "demo"]) == 130
    assert capsys.readouterr().err == "fedfibos: interrupted\n"
    assert main(["flower", "demo", "--method", "fedfibus"]) == 2
    assert "did you mean 'fedfibos'" in capsys.readouterr().err


def test_processes_are_quiet_and_private(tmp_path):
    """Telemetry and update checks are off in every process that is started, and Flower's files stay in the folder."""
    environment = Processes(tmp_path).environment
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"
    assert environment["FLWR_HOME"] == str(tmp_path / "home")


def test_a_process_that_ends_early_is_one_line(tmp_path):
    with Processes(tmp_path) as processes:
        processes.start("short", "false")
        with pytest.raises(LaunchError, match=r"short ended with exit code 1: it wrote nothing") as error:
            processes.wait_for_port("short", free_port(), seconds=30)
    assert "\n" not in str(error.value)
