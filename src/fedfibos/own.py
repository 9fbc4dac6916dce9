"""A user's own model or data set, named ``module:function`` where an experiment names one of ours."""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedfibos.validation import check_name

T = TypeVar("T")


def is_own(name: object) -> bool:
    """Whether a name says where a user's own code is: ``module:function``."""
    return isinstance(name, str) and ":" in name


def find(what: str, name: Any, known: Mapping[str, T]) -> T | Callable[..., Any]:
    """What a name stands for: one of ours, or a user's own function.

    Args:
        what: The key that holds the name, for messages.
        name: A key of ``known``, or ``module:function``, imported as Python imports anything. The command line looks in
            the current folder too.
        known: Ours.

    Raises:
        ValueError: No such name, module or function, in one line.
    """
    if is_own(name):
        return _imported(what, name)
    check_name(what, name, known)
    return known[name]


def source_sha256(name: str) -> str | None:
    """SHA-256 of the file that a user's own function is written in; None where it has none.

    What that file imports is not in it: this tells that a model changed, not that it did not.
    """
    try:
        file = inspect.getsourcefile(inspect.unwrap(_imported("a name", name)))
    except TypeError:  # written in C, say
        return None
    return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _imported(what: str, name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    if not module or not attribute.isidentifier():
        raise ValueError(f"{what} must be a name of ours or 'module:function', got {name!r}")
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"{what} = {name!r}: {module} imports {error.name}, which is not installed") from error
        raise ValueError(
            f"{what} = {name!r}: no module {error.name!r} in the current folder or among what is installed"
        ) from None
    found = getattr(home, attribute, None)
    if not callable(found):
        near = [key for key, value in vars(home).items() if callable(value) and not key.startswith("_")]
        check_name(f"{what}: the function of {module}", attribute, near)
        raise ValueError(f"{what} = {name!r}: {attribute} must be a function, got {found!r}")
    return found  # type: ignore[no-any-return]
