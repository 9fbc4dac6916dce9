"""What the gateway lets through is written down; the attack from outside is tried on real processes (slow)."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from local_grid import lines_of, run_template

from fedfibos.cli import main
from fedfibos.flower.certificates import make_key
from fedfibos.flower.demo import CAPACITIES
from fedfibos.flower.deployment import Deployment
from fedfibos.flower.gateway import Gateway, GatewayError, nginx
from fedfibos.flower.launch import HOST, LaunchError, Processes
from fedfibos.flower.new import new_app

NODES = [{"client-id": n, "capacity": capacity} for n, capacity in enumerate(CAPACITIES)]
SHORT = {"federation.rounds": 2, "local.steps": 5, "federation.evaluate_every": 2}
needs_nginx = pytest.mark.skipif(nginx() is None, reason="nginx is not installed (Debian: apt-get install nginx-light)")

REFUSED = [
    "/v1/control/list-nodes",
    "/v1/control/start-run",
    "/v1/control/register-node",
    "/v1/runtime/acquire-task",
    "/v1/runtime/pull-task-input",
    "/v1/fleet/register-node",
    "/v1/fleet/unregister-node",
    "/v1/fleet/",
    "/v1/fleet/../control/start-run",
    "/v1/fleet/%2e%2e/control/start-run",
    "/v1/fleet/pull-messages/../../control/start-run",
    "/v1/fleet/pull-messages/%2e%2e/%2e%2e/control/start-run",
    "/v1/fleet/pull-messages%00/../../control/start-run",
    "/v1/fleet/pull-messages%0a",
    "/v1/fleet/pull-messages;/../../control/start-run",
    "//v1/control/start-run",
    "/V1/control/start-run",
    "/v1//control/start-run",
    "/v1/control/start-run?x=/v1/fleet/pull-messages",
    "/v1/control/start-run#/v1/fleet/pull-messages",
    "/docs",
    "/openapi.json",
    "/health",
    "/",
]
SPELLED_OTHERWISE = "/v1/control/start-run/../../fleet/pull-messages"
"""It is a path of the Fleet API, and goes on as nothing else."""


@pytest.fixture
def certificates(tmp_path):
    for name in ("ca.crt", "server.pem", "server.key"):
        (tmp_path / name).write_text("")
    return tmp_path


def test_the_gateway_passes_what_a_supernode_calls_and_nothing_else(certificates, tmp_path):
    """Every path of the SuperLink, as Flower has it installed, against the configuration's own expression."""
    from flwr.superlink.routers.control import router as control
    from flwr.superlink.routers.fleet.router import router as fleet

    text = Gateway("0.0.0.0:9093", "127.0.0.1:9092", certificates).write(tmp_path / "gateway").read_text()
    (expression,) = re.findall(r"location ~ (\S+) \{", text)
    paths = {route.path for router in (control, fleet) for route in router.routes}
    passed = {path for path in paths if re.match(expression, path)}
    assert "/v1/control/start-run" in paths
    assert passed == {path for path in paths if path.startswith("/v1/fleet/") and "register-node" not in path}
    assert len(passed) == 10
    assert "listen 0.0.0.0:9093 ssl;" in text
    assert "server 127.0.0.1:9092;" in text


@pytest.mark.parametrize(
    ("listen", "link", "message"),
    [
        ("0.0.0.0:9093", "0.0.0.0:9092", "the SuperLink must be on the loopback, 127.0.0.1, got 0.0.0.0"),
        ("9093", "127.0.0.1:9092", "the address that devices reach must be HOST:PORT, got '9093'"),
        ("0.0.0.0:70000", "127.0.0.1:9092", "must be HOST:PORT, got '0.0.0.0:70000'"),
        ("0.0.0.0:1; deny all", "127.0.0.1:9092", "must be HOST:PORT"),
    ],
)
def test_a_gateway_that_protects_nothing_is_refused(certificates, listen, link, message):
    with pytest.raises(GatewayError, match=re.escape(message)):
        Gateway(listen, link, certificates).write(certificates / "gateway")


def test_the_command_writes_it_and_says_how_it_is_started(certificates, tmp_path, capsys):
    out = tmp_path / "gateway"
    assert main(["flower", "gateway", str(out), "--certificates", str(certificates)]) == 0
    assert f"-e {out / 'error.log'} -c {out / 'nginx.conf'}" in capsys.readouterr().out
    assert main(["flower", "gateway", str(out), "--certificates", str(tmp_path / "none")]) == 2
    assert "ca.crt is not there: docs/how-to/secure_fleet.md has the commands for it" in capsys.readouterr().err


@pytest.mark.slow
@needs_nginx
def test_a_stranger_who_has_the_address_and_the_certificate_runs_nothing(tmp_path):
    """The attack, from a fresh FLWR_HOME; registered devices train through the same entrance meanwhile."""
    new_app(tmp_path / "app")
    with Processes(tmp_path) as processes:
        deployment = Deployment.secure(processes)
        deployment.start_link()
        deployment.start_gateway()
        for node in NODES:
            name = f"client-{node['client-id']}"
            deployment.start_node(name, node, *deployment.register(name))
        stranger = Stranger(tmp_path / "stranger", tmp_path / "keys" / "ca.crt", deployment)
        out = tmp_path / "run"
        deployment.start_run(tmp_path / "app", {**SHORT, "run-dir": str(out)})
        for command in (
            ("flwr", "supernode", "list", "there"),
            ("flwr", "supernode", "register", "stranger.pub", "there"),
            ("flwr", "run", "app", "there"),
            ("flwr", "ls", "there"),
        ):
            done = stranger.call(*command)
            assert done.returncode != 0, command
            assert "404" in done.stdout + done.stderr
        for path in REFUSED:
            assert stranger.post(path) in ("400", "404"), path
        assert stranger.post(SPELLED_OTHERWISE) == stranger.post("/v1/fleet/pull-messages")
        assert stranger.post("/v1/fleet/pull-messages", "GET") == "403"
        stranger.join(processes)
        wait_until(lambda: (out / "final.json").exists(), processes, limit=180)
        listed = json.loads(processes.call("flwr", "ls", "here", "--format", "json"))
        nodes = json.loads(processes.call("flwr", "supernode", "list", "here", "--format", "json"))
    assert len(listed["runs"]) == 1, "the stranger's run is not among them"
    assert len(nodes["nodes"]) == len(NODES), "nor is the stranger's key"
    log = processes.log("superlink").read_text()
    assert log.count("/v1/control/start-run") == 1
    assert "/v1/runtime/acquire-task" not in log or log.count("AcquireTask") == 0
    assert lines_of(out)[0]["participants"] == [0, 1, 2]
    final = json.loads((out / "final.json").read_text())
    assert final["params_sha256"] == run_template(tmp_path / "one", NODES, **SHORT)["params_sha256"]


class Stranger:
    """One who has the server's address and the authority's certificate, which lie on every device, and no secret."""

    def __init__(self, folder, certificate, deployment):
        self.folder, self.deployment = folder, deployment
        (folder / "home").mkdir(parents=True)
        shutil.copy(certificate, folder / "ca.crt")
        address = f"{HOST}:{deployment.entrance}"
        (folder / "home" / "config.toml").write_text(
            f'[superlink.there]\naddress = "{address}"\nroot-certificates = "{folder / "ca.crt"}"\n'
        )
        make_key(folder, "stranger")
        new_app(folder / "app")

    def call(self, program, *arguments):
        """A command of Flower's."""
        environment = {**self.deployment.processes.environment, "FLWR_HOME": str(self.folder / "home")}
        command = [shutil.which(program, path=environment["PATH"]), *arguments]
        return subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False
        )

    def post(self, path, method="POST"):
        """The status of a request of that very path, sent as it is written."""
        command = ["curl", "--silent", "--max-time", "20", "--path-as-is", "--cacert", str(self.folder / "ca.crt")]
        command += ["--request", method, "--data-binary", "x", "--header", "Content-Type: application/protobuf"]
        command += ["--output", "/dev/null", "--write-out", "%{http_code}"]
        target = path.replace("#", "%23")
        command.append(f"https://{HOST}:{self.deployment.entrance}{target}")
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout

    def join(self, processes):
        """Try to join as a device, with a key that nobody registered, and without one."""
        for name, key in (
            ("stranger", ("--auth-supernode-private-key", str(self.folder / "stranger"))),
            ("keyless", ()),
        ):
            self.deployment.start_node(name, {"client-id": 9, "capacity": 1.0}, *key)
            with pytest.raises(LaunchError, match=f"{name} ended with exit code"):
                wait_until(lambda: False, processes, name, limit=60)
            processes.stop(name)


@pytest.mark.slow
def test_without_the_gateway_whoever_reaches_the_superlink_runs_what_they_like(tmp_path):
    """Why there is one: keys of SuperNodes cover the Fleet API alone. Should Flower mend it, this test tells."""
    with Processes(tmp_path) as processes:
        deployment = Deployment.secure(processes)
        deployment.entrance = deployment.port
        deployment.start_link()
        stranger = Stranger(tmp_path / "stranger", tmp_path / "keys" / "ca.crt", deployment)
        for command in (("flwr", "supernode", "register", "stranger.pub", "there"), ("flwr", "run", "app", "there")):
            assert stranger.call(*command).returncode == 0, command


@pytest.mark.slow
def test_the_superlink_of_the_secure_deployment_is_on_the_loopback_alone(tmp_path):
    with Processes(tmp_path) as processes:
        deployment = Deployment.secure(processes)
        deployment.start_link()
        assert listening_at(deployment.port) == {"127.0.0.1"}
        plain = subprocess.run(
            ["curl", "--silent", "--max-time", "5", f"http://{HOST}:{deployment.port}/"],
            capture_output=True,
            check=False,
        )
        assert plain.returncode != 0, "the SuperLink must not speak plain HTTP"


def listening_at(port):
    """Addresses (IPv4; the names of others as they are written) at which something listens on a port (Linux)."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            address, _, number = line.split()[1].rpartition(":")
            if line.split()[3] == "0A" and int(number, 16) == port:
                short = len(address) == 8
                found.add(socket.inet_ntoa(bytes.fromhex(address)[::-1]) if short else address)
    return found


def wait_until(condition, processes, *watched, limit=240.0):
    """Until the condition holds, while the SuperLink, the gateway and those processes run."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"not within {limit:g} s: see {processes.folder / 'logs'}"
        processes.check(*[name for name in ("superlink", "gateway", *watched) if name in processes.running])
        time.sleep(0.5)
