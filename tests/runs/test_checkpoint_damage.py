"""No damaged checkpoint is believed: each bit, each byte and each file of it, in every home of per-client scores.

A damaged checkpoint gives way, with a warning, to the one before it; no damage is a traceback or the model's fault.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from fedfibos.params import Params, layout_of
from fedfibos.runs.checkpoint import Checkpoint, CheckpointStore
from fedfibos.runs.manifest import decode
from fedfibos.runs.reading import RecordError
from fedfibos.types import State

LAYOUT = layout_of(nn.Linear(3, 2))
LINE = '{"round": %d, "loss": 0.5, "rejected": {}, "bytes": {"down": 10, "up": 3}, "seconds": 0.25}\n'
EVALUATED = LINE.replace("}\n", ', "evaluation": {"global": {"full": 0.5}}}\n')

HOMES = {
    "none": ("memory", 4),
    "memory": ("memory", 4),
    "disk": ("disk", 4),
    "halves": ("disk", 2),
    "client": ("client", 4),
}
"""Name -> home of the scores and bytes a score; ``none``: no client has any, as for a shared score."""

THINLY, EVERY = 91, pytest.param(1, marks=pytest.mark.slow)
"""Steps between the places that are damaged. The first has no factor in common with 8: every bit of a byte is met."""


class Written:
    """Two checkpoints of a run with four rounds on record, and what is read back of them."""

    def __init__(self, run: Path, home: str) -> None:
        self.run, self.home = run, HOMES[home]
        run.mkdir(exist_ok=True)
        store = self.store()
        state = State({"score": torch.arange(6.0)}, store.scores.empty())
        for number in (1, 2, 3, 4):
            with (run / "rounds.jsonl").open("a") as file:
                file.write((EVALUATED if number == 2 else LINE) % number)
            if home != "none":
                state = state.with_row(number, torch.full((6,), float(number))).with_row(0, torch.arange(6.0) * number)
            if number % 2 == 0:
                store.save(Checkpoint(number, Params(LAYOUT, torch.full((LAYOUT.size,), float(number))), state))
        self.older, self.newest = run / "checkpoint" / "round-000002", run / "checkpoint" / "round-000004"
        rows = [*(run / "checkpoint" / "rows").glob("*"), *(run / "clients").glob("*")]
        self.rows = sorted(path for path in rows if path.is_file())
        self.content = {2: ..., 4: self.read()[0]}
        self.newest.rename(run / "aside")
        self.content[2] = self.read()[0]
        (run / "aside").rename(self.newest)

    def store(self) -> CheckpointStore:
        return CheckpointStore(self.run, *self.home)

    def read(self) -> tuple[object, list[str]]:
        """What a resumption believes, and what it is warned of."""
        warnings: list[str] = []
        found = self.store().load_latest(LAYOUT, warnings.append, to_go_on=True)
        if found is None:
            return None, warnings
        rows = {client: found.state.rows.get(client).tolist() for client in found.state.rows.clients()}
        tensors = {name: tensor.tolist() for name, tensor in found.state.tensors.items()}
        writes = getattr(found.state.rows, "writes", None)
        return (found.round, found.params.flat.tolist(), tensors, rows, writes), warnings

    def passed_over(self, what: str) -> None:
        """The newest is not believed: the one before it is, or none where both need what is damaged."""
        believed, warnings = self.read()
        assert believed in (self.content[2], None), what
        assert len(warnings) == (1 if believed else 2), what
        assert warnings[0].startswith("checkpoint round-"), what
        assert all("\n" not in warning for warning in warnings), what

    def own_files(self) -> list[Path]:
        """Those of the newest checkpoint, its rows among them."""
        named = json.loads((self.newest / "meta.json").read_text())["rows"].values()
        return [*sorted(self.newest.iterdir()), *(path for path in self.rows if path.name in named)]


@pytest.fixture(params=HOMES)
def written(request, tmp_path) -> Written:
    return Written(tmp_path / "run", request.param)


def changes(content: bytes, step: int) -> Iterator[tuple[str, bytes]]:
    """Every bit flipped, every byte lost or doubled, every shorter length: each of ``step`` of them."""
    for place in range(0, 8 * len(content), step):
        at, bit = divmod(place, 8)
        yield f"bit {place}", content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
    for at in range(0, len(content), step):
        yield f"without byte {at}", content[:at] + content[at + 1 :]
        yield f"byte {at} twice", content[: at + 1] + content[at:]
        yield f"cut to {at}", content[:at]


ALL = [pytest.param(home, 1, marks=pytest.mark.slow) for home in ("none", "memory", "client")]


@pytest.mark.slow_where("91")
@pytest.mark.parametrize(("home", "step"), [*((home, THINLY) for home in HOMES), *ALL])
def test_no_changed_byte_is_believed(tmp_path, home, step):
    written = Written(tmp_path / "run", home)
    tried = 0
    for path in written.own_files():
        content = path.read_bytes()
        for what, changed in changes(content, step):
            path.write_bytes(changed)
            written.passed_over(f"{path.name}: {what}")
            tried += 1
        path.write_bytes(content)
    assert tried >= 50
    assert written.read() == (written.content[4], [])


@pytest.mark.parametrize("step", [THINLY, EVERY])
def test_no_changed_past_is_believed(tmp_path, step):
    """What the rounds on record say is in the report of the resumed run, and tells a fleet who took part."""
    written = Written(tmp_path / "run", "none")
    path = written.run / "rounds.jsonl"
    content = path.read_bytes()
    lines = [json.loads(line) for line in content.splitlines()]
    seen = set()
    for what, changed in changes(content, step):
        path.write_bytes(changed)
        now = 0
        with contextlib.suppress(RecordError):
            now = written.read()[0][0]
        assert now in (0, 2, 4)
        assert [json.loads(line) for line in changed.splitlines()[:now]] == lines[:now], what
        seen.add(now)
    assert seen >= {0, 2}
    path.write_bytes(content[1:])
    with pytest.raises(
        RecordError, match=r"rounds\.jsonl is damaged: the checkpoints are of other rounds than are in it"
    ):
        written.read()
    path.write_bytes(content)
    assert written.read() == (written.content[4], [])


def test_no_lost_or_replaced_file_is_believed(written):
    files = written.own_files()
    for path in files:
        content = path.read_bytes()
        path.unlink()
        written.passed_over(f"without {path.name}")
        path.mkdir()
        written.passed_over(f"a folder for {path.name}")
        path.rmdir()
        for other in [*files, *written.older.iterdir()]:
            if other != path and other.read_bytes() != content:
                shutil.copy(other, path)
                written.passed_over(f"{other.parent.name}/{other.name} for {path.name}")
        path.write_bytes(content)
    assert written.read() == (written.content[4], [])


def test_no_row_is_believed_to_be_another_clients(written):
    named = [path for path in written.own_files() if path in written.rows]
    for one, other in itertools.pairwise(named):
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
        written.passed_over(f"{one.name} and {other.name} swapped")
        one.write_bytes(first)
        other.write_bytes(second)


@pytest.mark.parametrize("name", ["round-000005", "round-000003", "round-000014", "round-4", "round-0000004"])
def test_a_renamed_folder_is_not_believed(written, name):
    written.newest.rename(written.newest.with_name(name))
    believed, warnings = written.read()
    assert believed == written.content[2]
    if not name.endswith("3"):
        assert warnings == [f"checkpoint {name} is damaged (meta.json is of round-000004): using round-000002"]


def test_folders_that_changed_places_are_not_believed(written):
    written.newest.rename(written.run / "aside")
    shutil.copytree(written.older, written.newest)
    written.passed_over("the older one twice")
    shutil.rmtree(written.older)
    (written.run / "aside").rename(written.older)
    believed, warnings = written.read()
    assert believed is None
    assert len(warnings) == 2


def test_a_file_in_the_place_of_a_checkpoint_is_passed_over_and_replaced(written):
    shutil.rmtree(written.newest)
    written.newest.write_text("what?")
    written.passed_over("a file")
    store = written.store()
    found = store.load_latest(LAYOUT, lambda text: None)
    store.save(Checkpoint(4, found.params, found.state))
    assert written.read()[0][0] == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: [],
        lambda meta: None,
        lambda meta: "round 4",
        lambda meta: {},
        lambda meta: {**meta, "round": 3},
        lambda meta: {**meta, "round": "4"},
        lambda meta: {**meta, "round": True},
        lambda meta: {**meta, "size": 9},
        lambda meta: {**meta, "layout": "00"},
        lambda meta: {**meta, "files": {}},
        lambda meta: {**meta, "files": []},
        lambda meta: {**meta, "files": {**meta["files"], "params.safetensors": 1}},
        lambda meta: {**meta, "files": {**meta["files"], "/etc/hostname": "00"}},
        lambda meta: {**meta, "rows": {"7": "000007-000001.safetensors"}},
        lambda meta: {**meta, "rows": None},
        lambda meta: {**meta, "row_writes": "many"},
        lambda meta: {**meta, "row_writes": -1},
        lambda meta: {**meta, "more": 1},
        lambda meta: {**meta, "sha256": None},
        lambda meta: dict(reversed(meta.items())),
        lambda meta: {key: value for key, value in meta.items() if key != "round"},
        lambda meta: {key: value for key, value in meta.items() if key != "sha256"},
    ],
)
def test_metadata_of_another_kind_are_damage(written, change):
    path = written.newest / "meta.json"
    path.write_text(json.dumps(change(json.loads(path.read_text())), indent=1) + "\n")
    written.passed_over(path.read_text())


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"[" * 100_000, b"{" * 100, b'{"sha256": NaN}', b'{"a": 1' + b"0" * 5000]
)
def test_metadata_that_are_no_json_are_damage(written, content):
    (written.newest / "meta.json").write_bytes(content)
    written.passed_over(str(content[:20]))


def test_metadata_with_a_right_digest_must_still_be_those_of_a_checkpoint(written):
    """Nobody writes them, and yet they are no traceback."""
    path = written.newest / "meta.json"
    manifest = decode(path.read_bytes())
    for change in (
        {"files": {}},
        {"rows": {5: "000005-000001.safetensors"}},
        {"row_writes": None if manifest.row_writes else 3},
    ):
        path.write_bytes(type(manifest)(**{**vars(manifest), **change}).encode())
        written.passed_over(str(change))


def test_a_run_that_went_on_from_the_one_before_drops_the_damaged_one(written):
    """Else it might become sound again, when later files get its rows' names, and be of a run that went otherwise."""
    (written.newest / "params.safetensors").unlink()
    store = written.store()
    found = store.load_latest(LAYOUT, lambda text: None)
    assert found.round == 2
    store.save(Checkpoint(3, found.params, found.state))
    assert [path.name for path in sorted((written.run / "checkpoint").glob("round-*"))] == [
        "round-000002",
        "round-000003",
    ]
