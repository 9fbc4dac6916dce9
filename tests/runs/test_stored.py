"""Files of runs are read alike as files and in an archive."""

import shutil

import pytest
from pydantic import TypeAdapter

from fedfibos.common.validation import ExperimentError
from fedfibos.runs.archive import archive_of, pack
from fedfibos.runs.reading import RecordError
from fedfibos.runs.stored import experiment_of, is_stored, read_object, settings_of, stored_below, stored_bytes


def test_of_a_run_directory(run, config):
    assert stored_bytes(run / "config.toml") == config.encode()
    assert is_stored(run / "final.json")
    assert not is_stored(run / "audit.json")
    assert settings_of(run)["federation"]["clients"] == 10
    assert experiment_of(run).federation.cohort == 5
    assert read_object(run / "final.json", TypeAdapter(dict))["params_sha256"] == "00"
    assert stored_below(run.parent, "final.json") == [run / "final.json"]


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"config.toml: cannot be read: No such file or directory$"):
        settings_of(tmp_path)
    (tmp_path / "config.toml").write_text("= 3")
    with pytest.raises(ExperimentError, match=r"config.toml"):
        settings_of(tmp_path)


def test_of_an_archive(run, config):
    study = run.parent
    archive = pack(study)
    shutil.rmtree(run)
    assert archive == archive_of(study)
    assert stored_bytes(run / "config.toml") == config.encode()
    assert is_stored(run / "final.json")
    assert stored_below(study, "final.json") == [run / "final.json"]
    assert stored_below(archive, "config.toml") == [run / "config.toml"]
    assert experiment_of(run).federation.cohort == 5
