"""Why a SuperNode could not join, in one line; with real processes under the slow marker."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedfibos.flower.certificates import make_authority, make_key
from fedfibos.flower.deployment import Deployment
from fedfibos.flower.launch import HOST, Processes, free_port
from fedfibos.flower.supernode import why_it_ended

UNREGISTERED = "its key is not registered: on the server, flwr supernode register KEY.pub"
OTHER_AUTHORITY = (
    "the server's certificate is not of this authority: --root-certificates must be the ca.crt of the server's"
)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[code: 2004] Failed to activate SuperNode.", UNREGISTERED),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate",
            OTHER_AUTHORITY,
        ),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch, certificate is for 'x'",
            "the server's certificate is of another name or address than --superlink: add it to subjectAltName",
        ),
        ("SuperNode terminated gracefully.", None),
    ],
)
def test_flowers_words_in_one_line(line, reason):
    assert why_it_ended(["Starting Flower SuperNode", line, "Finished server process"]) == reason


def node(*options):
    command = [sys.executable, "-m", "fedfibos", "flower", "supernode", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    return done.returncode, done.stdout, done.stderr.strip().splitlines()


@pytest.mark.slow
def test_an_unregistered_key_and_a_wrong_authority_are_one_line_each(tmp_path):
    with Processes(tmp_path) as processes:
        deployment = Deployment.secure(processes)
        deployment.start_link()
        keys, other = tmp_path / "keys", tmp_path / "other"
        make_key(keys, "device")
        make_authority(other)
        where = ("--superlink", f"{HOST}:{deployment.port}", "--auth-supernode-private-key", str(keys / "device"))
        for certificate, reason in ((keys, UNREGISTERED), (other, OTHER_AUTHORITY)):
            options = ("--root-certificates", str(certificate / "ca.crt"), "--port", str(free_port()))
            code, text, lines = node(*where, *options, "--node-config", "client-id=0 capacity=1.0")
            assert code == 1
            assert "Starting Flower SuperNode" in text
            assert lines[-1] == f"fedfibos: the SuperNode ended: {reason}"
