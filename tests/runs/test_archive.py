"""A study in one file: the same bytes each time, read as its folder is, damage seen."""

from __future__ import annotations

import io
import os
import re
import shutil
import tarfile

import pytest
import zstandard

from fedfibos.cli import main
from fedfibos.config.experiment import load_experiment
from fedfibos.config.study import load_study
from fedfibos.report.records import find_runs, read_record
from fedfibos.runs.archive import archive_of, encode, pack, read_archive
from fedfibos.runs.reading import RecordError
from fedfibos.runs.stored import experiment_of, is_stored, stored_below, stored_bytes
from fedfibos.simulation import simulate
from fedfibos.simulation.sweep import SweepProgress, run_study
from small_experiment import small_experiment

STUDY = """
base = "experiment.toml"
seeds = [0, 1]
[grid.method]
fedavg = { method.name = "fedavg" }
fiarse = { method.name = "fiarse" }
"""
RUNS = ("fedavg/seed-0", "fedavg/seed-1", "fiarse/seed-0", "fiarse/seed-1")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study that was run."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "experiment.toml").write_text(small_experiment("federation.rounds = 1"))
    (folder / "study.toml").write_text(STUDY)
    run_study(load_study(folder / "study.toml"), folder / "study", SweepProgress(), workers=1)
    return folder


@pytest.fixture
def study(made, tmp_path):
    """A copy of its folder, of experiment files and runs."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy" / "study"


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def records(path):
    return {name: read_record(run, name) for run, name in find_runs([path]).items()}


def test_an_archive_has_the_records_and_no_checkpoint(study):
    run = study / RUNS[0]
    (run / "code" / "mine").mkdir(parents=True)
    (run / "code" / "mine" / "net.py").write_text("x = 1\n")
    (run / "diagnosis.json").write_text("{}")
    (run / ".lock").write_text("")
    (run / ".final.json.tmp").write_text("{")
    (run / "clients").mkdir()
    (run / "clients" / "000001-000001.safetensors").write_text("scores")
    (study / "README.md").write_text("what this is\n")
    wanted = {
        name: content
        for name, content in contents(study).items()
        if not {"checkpoint", "clients", ".lock", ".final.json.tmp"}.intersection(name.split("/"))
    }
    assert len(wanted) == 4 * 5 + 3
    assert pack(study) == study.with_name("study.tar.zst")
    assert dict(read_archive(archive_of(study))) == wanted


def test_the_same_folder_gives_the_same_bytes(study, tmp_path):
    first = pack(study).read_bytes()
    other = tmp_path / "other" / "study"
    for name, content in reversed(contents(study).items()):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_bytes(content)
        os.chmod(other / name, 0o600)
        os.utime(other / name, (1e9, 1e9))
    assert pack(other).read_bytes() == first
    content = zstandard.ZstdDecompressor().decompress(first)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        members = tar.getmembers()
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {(0, 0, 0, "", "", 0o644)}
    first_five = [*(f"study/{run}/config.toml" for run in RUNS), f"study/{RUNS[0]}/environment.json"]
    assert [m.name for m in members][:5] == first_five


def test_a_packed_study_is_read_as_its_folder_is(study):
    unpacked = records(study)
    assert list(unpacked) == [f"study/{run}" for run in RUNS]
    archive = pack(study)
    shutil.rmtree(study)
    for path in (archive, study):
        assert records(path) == unpacked
    assert list(records(study.parent)) == [f"copy/study/{run}" for run in RUNS]
    assert list(records(study / "fiarse")) == ["fiarse/seed-0", "fiarse/seed-1"]
    assert list(records(study / RUNS[0])) == ["fedavg/seed-0"]
    assert experiment_of(study / RUNS[3]).method.name == "fiarse"
    assert stored_below(study, "final.json") == [study / run / "final.json" for run in RUNS]
    assert not is_stored(study / RUNS[0] / "evaluation.json")
    with pytest.raises(FileNotFoundError):
        stored_bytes(study / RUNS[0] / "evaluation.json")
    with pytest.raises(
        RecordError,
        match=r"/heterofl must be a run directory, a folder of some or an archive of one, it does not exist",
    ):
        find_runs([study / "heterofl"])


def test_a_run_is_added_to_a_packed_study(study):
    """A folder beside the archive, until it is packed too; of a run that both have, the folder's counts."""
    aside = study.parent / "aside"
    shutil.move(study / "fiarse" / "seed-1", aside)
    archive = pack(study)
    before = records(study)
    shutil.rmtree(study)
    shutil.copytree(aside, study / "fiarse" / "seed-1")
    shutil.copytree(aside, study / "fedavg" / "seed-0")
    both = records(study)
    assert list(both) == [f"study/{run}" for run in RUNS]
    assert both["study/fedavg/seed-1"] == before["study/fedavg/seed-1"]
    assert both["study/fedavg/seed-0"].experiment.method.name == "fiarse"
    assert records(archive) == both
    pack(study)
    shutil.rmtree(study)
    assert records(study) == both
    assert len(read_archive(archive)) == 4 * 5


def test_a_sweep_passes_over_what_is_finished_in_the_archive(study):
    plan = load_study(study.parent / "study.toml")
    pack(study)
    shutil.rmtree(study)
    outcomes = run_study(plan, study, SweepProgress(), workers=1)
    assert [outcome.state for outcome in outcomes] == ["finished"] * 4
    assert not study.exists()
    more = load_study(study.parent / "study.toml", ["federation.rounds=2"])
    assert run_study(more, study, SweepProgress(), workers=1)[0].state == "done"  # another experiment lies beside
    assert sorted(path.name for path in study.iterdir()) == ["fedavg", "fiarse"]


def test_a_run_in_an_archive_may_be_run_again_beside_it(study):
    experiment = load_experiment(study / RUNS[0])
    before = records(study)["study/fedavg/seed-0"].final
    pack(study)
    shutil.rmtree(study)
    after = simulate(experiment, study / RUNS[0], workers=1)
    assert after["params_sha256"] == before["params_sha256"]
    assert list(records(study)) == [f"study/{run}" for run in RUNS]


DAMAGE = {
    "empty": lambda content: b"",
    "no archive": lambda content: b"hello",
    "cut": lambda content: content[:-1],
    "half": lambda content: content[: len(content) // 2],
    "more": lambda content: content + b"\0",
    "no tar": lambda content: zstandard.ZstdCompressor().compress(b"hello" * 1000),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_archive_is_named(study, damage):
    archive = pack(study)
    archive.write_bytes(DAMAGE[damage](archive.read_bytes()))
    shutil.rmtree(study)
    with pytest.raises(RecordError, match=r"study\.tar\.zst is damaged: ") as caught:
        find_runs([study])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_no_flipped_bit_of_an_archive_is_believed(tmp_path, step):
    archive = tmp_path / "study.tar.zst"
    files = {"a/config.toml": b"seed = 1\n", "a/rounds.jsonl": b'{"round": 1, "loss": 0.5}\n' * 40}
    content = encode("study", files)
    seen = 0
    for place in range(0, 8 * len(content), step):
        at, bit = divmod(place, 8)
        archive.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
        try:
            assert dict(read_archive(archive)) == files, place
        except RecordError:
            seen += 1
        archive.unlink()
    assert seen > len(content) / 2


def test_a_folder_without_runs_is_not_packed(tmp_path):
    with pytest.raises(RecordError, match=r"it holds no config\.toml"):
        pack(tmp_path)


@pytest.mark.slow
def test_the_command_packs_and_the_report_reads(study, capsys, monkeypatch):
    assert main(["pack", str(study)]) == 0
    out = capsys.readouterr().out
    assert re.fullmatch(rf"4 runs, \d\.\d\d kB: {re.escape(str(study))}\.tar\.zst\n", out), out
    first = archive_of(study).read_bytes()
    monkeypatch.chdir(study)
    assert main(["pack", "."]) == 0
    assert archive_of(study).read_bytes() == first
    monkeypatch.chdir(study.parent)
    shutil.rmtree(study)
    assert main(["report", "study.tar.zst", "--out", "page.html"]) == 0
    assert "2 results on 1 problem: page.html" in capsys.readouterr().out
    assert main(["pack", "nothing"]) != 0
    assert "nothing must be a folder of run directories, it does not exist" in capsys.readouterr().err
