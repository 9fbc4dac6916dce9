"""Files of rows are written once, and dropped with the last checkpoint that names them."""

import torch

from fedfibos.runs.kept_rows import KeptRows, files_of, writes_of
from fedfibos.runs.synced import sha256_of
from fedfibos.scores.rows import MemoryRows


def test_rows_in_memory_are_written_when_they_are_new(tmp_path):
    kept = KeptRows(tmp_path / "rows", "memory")
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    first = kept.save(MemoryRows({3: one}), 1)
    assert first[3].name == "000003-000001.safetensors"
    assert first[3].sha256 == sha256_of(tmp_path / "rows" / first[3].name)
    second = kept.save(MemoryRows({3: one, 5: other}), 2)
    assert (second[3], second[5].name) == (first[3], "000005-000002.safetensors")
    kept.drop_others({second[5].name})
    assert [path.name for path in (tmp_path / "rows").iterdir()] == ["000005-000002.safetensors"]


def test_rows_come_back_and_are_not_written_again(tmp_path):
    files = KeptRows(tmp_path, "memory").save(MemoryRows({3: torch.tensor([1.0, 2.0])}), 1)
    again = KeptRows(tmp_path, "memory")
    rows = again.load(files, None)
    assert rows.get(3).tolist() == [1.0, 2.0]
    assert again.save(rows, 9) == files
    assert again.path(files[3].name, tmp_path / "round-000001") == "../000003-000001.safetensors"


def test_rows_whose_home_is_the_disk_are_files_already(tmp_path):
    kept = KeptRows(tmp_path, "disk")
    assert writes_of(MemoryRows()) is None
    assert files_of(MemoryRows()) == set()
    rows = kept.empty()
    assert (writes_of(rows), files_of(rows)) == (0, set())
