"""``leaf:PATH``: LEAF's JSON files, in which every user has training and test examples of its own.

S. Caldas et al., LEAF: A Benchmark for Federated Settings, arXiv:1812.01097. A file has ``users`` and ``user_data``:
user -> ``x`` (inputs) and ``y`` (labels).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedfibos.data.forms.rows import Rows, Share, SplitSeed, split_of
from fedfibos.data.forms.targets import Targets, Wanted, targets_of
from fedfibos.data.split import Split

Side = Annotated[int, Field(ge=1, le=2**31)]
Example = tuple[Any, Any, str]
"""Input, label, user."""


@dataclass(frozen=True)
class LeafOptions:
    """How an input is read, and which examples are for testing.

    Attributes:
        shape: Shape of an input, such as ``[1, 28, 28]`` of FEMNIST's 784 numbers; as the file has it by default.
        field: Where an input is a list that holds the text (Sent140: 4): its place in it.
        test_share: Where there is no folder ``test``: share of every user's examples that is drawn for testing.
        split_seed: Seed of that draw.
    """

    shape: tuple[Side, ...] | None = None
    field: Annotated[int, Field(ge=0)] | None = None
    test_share: Share = 0.2
    split_seed: SplitSeed = 0


def read_leaf(path: Path, options: LeafOptions, wanted: Wanted) -> Split:
    """Read all JSON files of ``PATH/train`` and ``PATH/test``, or those of PATH, or the file PATH.

    Raises:
        ValueError: No JSON of that layout, a user without data, or inputs of several shapes; one line.
    """
    halves = [path / "train", path / "test"]
    if all(half.is_dir() for half in halves):
        train, test = (list(_examples(half, wanted)) for half in halves)
        for half, found in zip(halves, (train, test), strict=True):
            if not found:
                raise ValueError(f"{half}: it must have examples, got none")
    else:
        train, test, halves = list(_examples(path, wanted)), [], []
    examples = [*train, *test]
    if not examples:
        raise ValueError(f"{path}: it must have examples, got none")
    owners = [user for _, _, user in examples]
    if wanted.kind == "tokens":
        targets = _targets([value for value, _, _ in examples], wanted, f"{path}: inputs")
        assert isinstance(targets.values, Tensor)
        inputs: Tensor | tuple[str, ...] = targets.values
    else:
        targets = _targets([label for _, label, _ in examples], wanted, f"{path}: labels")
        inputs = _inputs([value for value, _, _ in examples], owners, options, path)
    rows = Rows(inputs, targets, len(train) if halves else None, owners)
    return split_of(rows, str(path), options.test_share, options.split_seed)


def _targets(values: list[Any], wanted: Wanted, where: str) -> Targets:
    kinds = {type(value) for value in values}
    if str in kinds and len(kinds) > 1:
        raise ValueError(f"{where} must be all text or all whole numbers, got both")
    if wanted.kind == "classes" or (kinds == {str} and wanted.kind == "any"):
        return Targets(values)
    if kinds - {int, float, list}:
        raise wanted.refusal(where, ", ".join(sorted(kind.__name__ for kind in kinds)))
    try:
        return targets_of(np.array(values), wanted, where)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise wanted.refusal(where, "lists of several lengths") from None


def _examples(path: Path, wanted: Wanted) -> Iterator[Example]:
    files = [path] if path.is_file() else sorted(file for file in path.glob("*.json") if file.is_file())
    if not files:
        raise ValueError(f"{path}: must hold .json files of LEAF's layout, got none")
    for file in files:
        yield from _of_file(file, wanted)


def _of_file(file: Path, wanted: Wanted) -> Iterator[Example]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: must be JSON in UTF-8 ({error})") from None
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None
    if not isinstance(content, dict) or not isinstance(content.get("user_data"), dict):
        raise ValueError(f"{file}: must have users and user_data, as LEAF's files have, got {_kinds(content)}")
    users = content.get("users", list(content["user_data"]))
    if not isinstance(users, list):
        raise ValueError(f"{file}: users must be a list of names, got {type(users).__name__}")
    for user in users:
        yield from _of_user(file, str(user), content["user_data"].get(str(user)), wanted)


def _of_user(file: Path, user: str, data: object, wanted: Wanted) -> Iterator[Example]:
    if not isinstance(data, dict) or not all(isinstance(data.get(key), list) for key in ("x", "y")):
        raise ValueError(f"{file}: user {user!r} must have the lists x and y in user_data, got {_kinds(data)}")
    if len(data["x"]) != len(data["y"]):
        raise ValueError(f"{file}: user {user!r} must have a label an input, got {len(data['y'])} for {len(data['x'])}")
    for value, label in zip(data["x"], data["y"], strict=True):
        if wanted.kind == "classes" and (isinstance(label, bool) or not isinstance(label, str | int)):
            raise ValueError(f"{file}: labels must be text or whole numbers, got {label!r:.60} of user {user!r}")
        yield value, label, user


def _kinds(value: object) -> str:
    return ", ".join(map(str, value))[:80] or "nothing" if isinstance(value, dict) else type(value).__name__


def _inputs(values: Sequence[Any], owners: Sequence[str], options: LeafOptions, path: Path) -> Tensor | tuple[str, ...]:
    if options.field is not None:
        for value, user in zip(values, owners, strict=True):
            if not isinstance(value, list) or len(value) <= options.field:
                raise ValueError(
                    f"{path}: data.options.field = {options.field} must be a place in every input, user "
                    f"{user!r} has one without it"
                )
        values = [value[options.field] for value in values]
    if all(isinstance(value, str) for value in values):
        if "" in values:
            raise ValueError(f"{path}: every text must have a word, got an empty one of {owners[values.index('')]!r}")
        return tuple(values)
    try:
        array = np.array(values, dtype=np.float32)
    except (ValueError, TypeError):
        raise ValueError(
            f"{path}: inputs must be texts, or numbers of one shape; data.options.field says which of a list is "
            "the text"
        ) from None
    if options.shape is not None:
        if math.prod(options.shape) * len(values) != array.size:
            raise ValueError(
                f"{path}: data.options.shape = {list(options.shape)} must have {array.size // len(values)} numbers, as "
                f"an input has, got {math.prod(options.shape)}"
            )
        array = array.reshape(len(values), *options.shape)
    return torch.from_numpy(array)
