"""The metadata of a checkpoint have one right form."""

import json

import pytest

from fedfibos.runs.manifest import Manifest, decode

MANIFEST = Manifest(
    round=7, size=20, layout="ab", files={"params": "00"}, rows={3: "3.safetensors"}, row_writes=2, settings="cd",
    records="ef", evaluation=None,
)  # fmt: skip


def test_what_was_written_is_read_back():
    assert decode(MANIFEST.encode()) == MANIFEST
    assert MANIFEST.folder == "round-000007"


def test_another_value_or_another_spelling_of_the_same_is_damage():
    content = MANIFEST.encode()
    for changed in (content.replace(b'"size": 20', b'"size": 21'), content.replace(b"\n", b"\n\n", 1), content + b"\n"):
        with pytest.raises(ValueError, match="does not have the SHA-256 that it gives of its content"):
            decode(changed)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "meta.json is not valid JSON"),
        (b"[]", "must be an object with a SHA-256 of its content"),
        (b'{"sha256": "", "round": -1}', "meta.json: "),
    ],
)
def test_what_is_no_manifest_is_one_line(content, message):
    with pytest.raises(ValueError, match=message) as error:
        decode(content)
    assert "\n" not in str(error.value)


def test_a_key_too_many_is_damage():
    values = {**json.loads(MANIFEST.encode()), "more": 1}
    with pytest.raises(ValueError, match=r"meta.json: more"):
        decode(json.dumps(values).encode())
