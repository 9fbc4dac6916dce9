"""A fleet's authority, the server's certificate and devices' keys, as docs/how-to/secure_fleet.md makes them."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

PROGRAMS = ("openssl", "ssh-keygen")


class CertificateError(RuntimeError):
    """A certificate or a key could not be made; the message is one line."""


def make_authority(folder: Path, names: Iterable[str] = (), days: int = 365) -> None:
    """Write ``ca.crt``, ``server.pem`` and ``server.key``, and the authority's own ``ca.key``.

    Args:
        folder: Where; made if it is not there, readable by its owner alone.
        names: Names and addresses by which devices reach the server, besides ``localhost`` and 127.0.0.1.
        days: How long they are valid.

    Raises:
        CertificateError: openssl is not there, or failed.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = ("localhost", "127.0.0.1", *names)
    (folder / "san.txt").write_text("subjectAltName=" + ",".join(map(_alternative, known)) + "\n", encoding="utf-8")
    new, valid = ("-newkey", "rsa:2048", "-nodes"), ("-days", str(days))
    _run(
        folder, "openssl", "req", "-x509", *new, *valid, "-subj", "/CN=fleet CA", "-keyout", "ca.key", "-out", "ca.crt"
    )
    _run(folder, "openssl", "req", *new, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", *valid, "-extfile", "san.txt")
    _run(folder, "openssl", "x509", "-req", "-in", "server.csr", *signed, "-out", "server.pem")


def make_key(folder: Path, name: str) -> None:
    """Write a device's key, ``NAME`` and ``NAME.pub``.

    Raises:
        CertificateError: ssh-keygen is not there, or failed.
    """
    _run(folder, "ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", name)


def _alternative(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def _run(folder: Path, program: str, *arguments: str) -> None:
    if shutil.which(program) is None:
        raise CertificateError(f"{program} is not installed: it makes the fleet's certificates and keys")
    done = subprocess.run([program, *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["it wrote nothing"]
        raise CertificateError(f"{program} {arguments[0]} failed: {lines[-1]}")
