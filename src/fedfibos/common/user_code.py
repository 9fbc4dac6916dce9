"""A user's own model, data set or method, named ``module:function`` where an experiment names one of ours."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fedfibos.common.validation import check_name, did_you_mean, listed

T = TypeVar("T")

LIBRARIES = (
    sysconfig.get_path("stdlib"),
    *(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")),
    f"{Path(__file__).parents[1]}{os.sep}",
)
"""Folders of code that is no user's."""


def is_own(name: object) -> bool:
    """Whether a name says where a user's own code is: ``module:function``."""
    return isinstance(name, str) and ":" in name


def find(what: str, name: Any, known: Mapping[str, T], value: type[Any] | None = None) -> T | Callable[..., Any]:
    """What a name stands for: one of ours, or a user's own function, :func:`guard`, or value.

    Args:
        what: The key that holds the name, for messages.
        name: A key of ``known``, or ``module:function``, imported as Python imports anything. The command line looks in
            the current folder too.
        known: Ours.
        value: What the user's own may be in place of a function.

    Raises:
        ValueError: No such name, module or function, in one line.
    """
    if is_own(name):
        found = _imported(what, name, value)
        return found if value is not None and isinstance(found, value) else guard(what, name, found)
    if "." in str(name) and name not in known:
        raise ValueError(f"{what} must be {listed(known)}, or your own 'module:function', got {name!r}")
    check_name(what, name, known)
    return known[name]


def source_sha256(what: str, name: str) -> str | None:
    """SHA-256 of the file that a user's own function is written in; None where it has none.

    What that file imports is not in it: this tells that a model changed, not that it did not.
    """
    try:
        found = _imported(what, name, object)
        home = found if callable(found) else sys.modules[name.partition(":")[0]]  # a value is where its module is
        file = inspect.getsourcefile(inspect.unwrap(home) if callable(home) else home)
    except (TypeError, OSError):  # written in C, say
        return None
    return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def module_file(name: str) -> tuple[Path, Path] | None:
    """The file of the module in ``module:function``, and its place in a folder that Python looks in.

    Of a module that has been imported; None for one that is no file of Python text.
    """
    module = name.partition(":")[0]
    file = getattr(sys.modules[module], "__file__", None)
    if file is None or not file.endswith(".py"):
        return None
    place = Path(*module.split("."))
    return Path(file), place / "__init__.py" if Path(file).name == "__init__.py" else place.with_suffix(".py")


class UserCodeError(ValueError):
    """What a user's own code raised, in a line: its file and line first, then the error, then what was called."""


def guard(what: str, name: str, function: Callable[..., T]) -> Callable[..., T]:
    """A user's own function that raises :class:`UserCodeError` whatever goes wrong in it.

    Args:
        what: The key that names it, for messages.
        name: Its name.
        function: Itself; :func:`unguard` gives it back.
    """
    call: Any = partial(_guarded_call, what, name, function)  # which, unlike a closure, another process can be sent
    call.__wrapped__ = call.guards = function
    return call  # type: ignore[no-any-return]


def _guarded_call(what: str, name: str, function: Callable[..., T], /, *arguments: Any, **options: Any) -> T:
    with naming(f"{what} = {name!r}"):
        return run_user_code(function, *arguments, **options)


def unguard(function: Callable[..., T]) -> Callable[..., T]:
    """What :func:`guard` was given; any other function itself."""
    return getattr(function, "guards", function)


def run_user_code(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call what runs a user's own code; an exit in it is an error like any other, Ctrl-C is not.

    Raises:
        UserCodeError: From what it raised.
    """
    try:
        return function(*arguments, **options)
    except (Exception, SystemExit) as error:
        raise UserCodeError(describe_error(error)) from error


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Say of which setting an error is: before what a check found, behind what a user's own code raised."""
    try:
        yield
    except UserCodeError as error:
        if str(error).endswith(f"(in {what})"):  # said where it was called
            raise
        raise UserCodeError(f"{error} (in {what})") from error
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def describe_error(error: BaseException) -> str:
    """An error in a line. One out of a user's code: its file and line, the kind and the message; else what it says."""
    text = _in_brief(str(error))
    if isinstance(error, SyntaxError):  # says so itself where
        return f"{type(error).__name__}: {text}"
    at = users_frame(error)
    if at is None:
        return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"
    file = Path(at.filename)
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file.name
    return f"{shown}, line {at.lineno}: {type(error).__name__}: {text}"


def users_frame(error: BaseException) -> traceback.FrameSummary | None:
    """The last line of a user's own code that an error went through; None where it went through none."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith((*LIBRARIES, "<"))]
    return theirs[-1] if theirs else None


LONGEST = 400
"""Characters of an error's own message that are shown: some of torch's are pages."""


def _in_brief(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def _imported(what: str, name: str, value: type[Any] | None = None) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    if not all(piece.isidentifier() for piece in (*module.split("."), attribute)):
        raise ValueError(f"{what} must be a name of ours or 'module:function', such as 'my_code:model', got {name!r}")
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"{what} = {name!r}: {module} imports {error.name}, which is not installed") from error
        near = f"; did you mean {f'{module[:-3]}:{attribute}'!r}?" if module.endswith(".py") else ""
        raise ValueError(
            f"{what} = {name!r}: no module {error.name!r} in the current folder or among what is installed{near}"
        ) from None
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{describe_error(error)} (importing {module} for {what} = {name!r})") from error
    found = getattr(home, attribute, None)
    if not callable(found) and not (value is not None and isinstance(found, value)):
        usable = [
            key for key, of in vars(home).items() if callable(of) or (value is not None and isinstance(of, value))
        ]
        near = did_you_mean(attribute, usable)
        got = "it has none" if found is None else f"got {found!r}"
        kind = "function" if value is None else f"{value.__name__} or a function"
        raise ValueError(f"{what} = {name!r}: {module} must have a {kind} {attribute}, {got}{near}")
    return found  # type: ignore[no-any-return]
