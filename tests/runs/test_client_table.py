"""Clients of a round, as its line and as the table have them."""

from __future__ import annotations

import json

import pytest

from fedfibos.runs.client_table import client_records, table_rows, write_clients

PART = {"capacity": 0.5, "up": 8, "loss": 1.5, "seconds": 0.123456, "memory": 4096, "down": 16}


def test_a_rejected_client_has_its_reason_and_no_loss():
    nan = {**PART, "loss": float("nan")}
    found = client_records({7: nan, 2: PART}, {7: "its training loss is nan"})
    assert list(found) == ["2", "7"]
    assert found["2"] == {**PART, "seconds": 0.1235}
    assert found["7"] == {k: v for k, v in found["2"].items() if k != "loss"} | {"rejected": "its training loss is nan"}
    json.dumps(found, allow_nan=False)


def test_rows_are_clients_of_rounds():
    lines = [{"round": 1, "clients": {"2": PART}}, {"round": 2}, {"round": 3, "clients": {"4": {"capacity": 1.0}}}]
    columns = table_rows(lines)
    assert columns["round"] == [1, 3]
    assert columns["client"] == [2, 4]
    assert columns["loss"] == [1.5, None]
    assert columns["rejected"] == [None, None]


def test_a_run_without_rounds_has_a_table_without_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="an extra")
    write_clients(tmp_path)
    assert parquet.read_table(tmp_path / "clients.parquet").num_rows == 0
