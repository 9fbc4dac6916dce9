"""Rows of scores in memory, and in files."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from fedfibos.methods import FedFIbOS
from fedfibos.scores import files as scores
from fedfibos.scores.files import FileRows
from fedfibos.scores.rows import MemoryRows


@pytest.mark.parametrize("block", [1, 3, 100])
def test_rows_in_files_are_rows_in_memory(tmp_path, monkeypatch, block):
    monkeypatch.setattr(scores, "BLOCK", block)
    files, memory = FileRows(tmp_path), MemoryRows()
    initial = torch.arange(7.0)
    for client in (4, 2, 4):

        def change(row, span):
            return row * 0.5 + torch.arange(10.0, 17.0)[span]

        files, memory = files.revise(client, initial, change), memory.revise(client, initial, change)
    files, memory = files.put(9, initial), memory.put(9, initial)
    assert files.clients() == memory.clients() == [2, 4, 9]
    for client in files.clients():
        assert torch.equal(files.get(client), memory.get(client))
        assert torch.equal(load_file(tmp_path / files.files[client].name)["row"], memory.get(client))
    assert files.get(0) is None


def test_the_server_of_per_client_scores_stores_the_prior_once():
    class Params:
        pass

    params = Params()
    params.flat, params.layout = torch.randn(6), Params()
    params.layout.num_maskable = 4
    assert FedFIbOS(sharing="client").init(params).tensors.keys() == {"prior"}
