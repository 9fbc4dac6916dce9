"""A SuperLink and SuperNodes of this machine: plain, or with TLS, keys and the gateway."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfibos.flower.certificates import make_authority, make_key
from fedfibos.flower.gateway import Gateway, nginx
from fedfibos.flower.launch import HOST, LaunchError, Processes, free_port


@dataclass
class Deployment:
    """A SuperLink and its SuperNodes on the loopback.

    Attributes:
        processes: Where they run.
        port: Of the SuperLink.
        link: Options of the SuperLink: ``--insecure``, or certificates.
        node: Options of every SuperNode: the same.
        connection: Entries of the SuperLink in Flower's ``config.toml``.
        entrance: Port at which SuperNodes come in; None: the SuperLink's own.
    """

    processes: Processes
    port: int
    link: tuple[str, ...] = ("--insecure",)
    node: tuple[str, ...] = ("--insecure",)
    connection: str = "insecure = true"
    entrance: int | None = None

    @classmethod
    def secure(cls, processes: Processes) -> Deployment:
        """TLS, keys of SuperNodes, and the gateway as the only entrance; see :mod:`fedfibos.flower.gateway`."""
        keys = processes.folder / "keys"
        make_authority(keys)
        link = ("--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key")
        return cls(
            processes,
            free_port(),
            (*(part if part.startswith("--") else str(keys / part) for part in link), "--enable-supernode-auth"),
            ("--root-certificates", str(keys / "ca.crt")),
            f'root-certificates = "{keys / "ca.crt"}"',
            free_port(),
        )

    def start_gateway(self) -> None:
        """Start nginx in front of the SuperLink.

        Raises:
            LaunchError: It is not installed.
        """
        program, folder = nginx(), self.processes.folder / "gateway"
        if program is None:
            raise LaunchError("nginx is not installed (Debian: apt-get install nginx-light): it is the fleet's gateway")
        assert self.entrance is not None
        gateway = Gateway(f"{HOST}:{self.entrance}", f"{HOST}:{self.port}", self.processes.folder / "keys")
        conf = gateway.write(folder)
        self.processes.start("gateway", program, "-e", str(folder / "error.log"), "-c", str(conf))
        self.processes.wait_for_port("gateway", self.entrance)

    def register(self, name: str) -> tuple[str, ...]:
        """Make a device's key and have the SuperLink know it; the SuperNode's options for it."""
        keys = self.processes.folder / "keys"
        make_key(keys, name)
        self.processes.call("flwr", "supernode", "register", str(keys / f"{name}.pub"), "here")
        return "--auth-supernode-private-key", str(keys / name)

    def start_link(self) -> None:
        """Start the SuperLink, and tell Flower's commands where it is."""
        home = self.processes.folder / "home"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{HOST}:{self.port}"\n{self.connection}\n'
        )
        self.processes.start(
            "superlink",
            "flower-superlink",
            *self.link,
            "--disable-runtime-dependency-installation",
            *("--host", HOST, "--port", str(self.port)),
            *("--database", str(home / "superlink.db")),
        )
        self.processes.wait_for_port("superlink", self.port)

    def start_node(self, name: str, config: dict[str, Any], *more: str, port: int | None = None) -> None:
        """Start a SuperNode.

        Args:
            name: Of the process.
            config: Its node config.
            *more: Further options (a private key).
            port: Where it finds the SuperLink, if not at the entrance.
        """
        text = " ".join(f"{key}={_literal(value)}" for key, value in config.items())
        self.processes.start(
            name,
            "flower-supernode",
            *self.node,
            *more,
            *("--superlink", f"{HOST}:{port or self.entrance or self.port}"),
            *("--host", HOST, "--port", str(free_port())),
            *("--node-config", text),
        )

    def start_run(self, app: Path, config: dict[str, Any], name: str = "run") -> None:
        """Start a run of an app; its log streams to ``logs/NAME.log`` until it ends."""
        text = " ".join(f"{key}={_literal(value)}" for key, value in config.items())
        self.processes.start(name, "flwr", "run", str(app), "here", "--stream", "-c", text)


def _literal(value: Any) -> str:
    """A value in Flower's ``key=value`` lists, which are TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else repr(value)
