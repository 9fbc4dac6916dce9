"""A gateway in front of the SuperLink: from outside, devices reach what a SuperNode needs and nothing else.

Flower's SuperLink answers on one port to devices (Fleet API), to its own app processes (Runtime API), and to whoever
starts runs and registers keys (Control API). Keys of SuperNodes are asked for by the Fleet API alone: whoever reaches
that port may run code on every device. The SuperLink listens on the loopback therefore, and nginx, which holds the
certificate, hands on the Fleet API's paths.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

FLEET = "/v1/fleet/"
CALLS = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "push-object",
    "pull-object",
    "confirm-message-received",
)
"""Of Flower 1.42's Fleet API, what a SuperNode with a registered key calls; without a key it would register itself."""

CONF = "nginx.conf"
LARGEST_BODY = "16m"
"""Flower cuts arrays into objects of 5 MiB and sends each in a request of its own."""

_TEMPLATE = """\
# Devices come in here. Passed on to the SuperLink: what a SuperNode with a registered key calls. All else is refused.
daemon off;
worker_processes 1;
pid "{folder}/nginx.pid";
error_log "{folder}/error.log" warn;
events {{
    worker_connections 4096;
}}
http {{
    client_body_temp_path "{folder}/tmp";
    proxy_temp_path "{folder}/tmp";
    fastcgi_temp_path "{folder}/tmp";
    uwsgi_temp_path "{folder}/tmp";
    scgi_temp_path "{folder}/tmp";
    server_tokens off;
    upstream superlink {{
        server {link};
        keepalive 16;
    }}
    server {{
        listen {listen} ssl;
        ssl_certificate "{certificates}/server.pem";
        ssl_certificate_key "{certificates}/server.key";
        ssl_protocols TLSv1.2 TLSv1.3;
        client_max_body_size {body};
        access_log "{folder}/refused.log";  # whoever asked for something else

        # The path that goes on is written here, whatever way the request spelled it; arguments stay behind.
        location ~ ^{fleet}({calls})$ {{
            limit_except POST {{
                deny all;
            }}
            access_log off;
            proxy_pass https://superlink{fleet}$1;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_request_buffering off;
            proxy_buffering off;
            proxy_ssl_verify on;
            proxy_ssl_trusted_certificate "{certificates}/ca.crt";
            proxy_ssl_name localhost;
        }}
        location / {{
            return 404;  # 403 would tell a SuperNode that a run is over
        }}
    }}
}}
"""


class GatewayError(ValueError):
    """The gateway cannot be set up as asked; the message is one line."""


@dataclass(frozen=True)
class Gateway:
    """What the gateway is between.

    Attributes:
        listen: ``HOST:PORT`` that devices reach.
        link: ``HOST:PORT`` of the SuperLink, on the loopback.
        certificates: Folder of ``ca.crt``, ``server.pem`` and ``server.key``. The SuperLink has the same certificate,
            which must be for ``localhost`` too.
    """

    listen: str
    link: str
    certificates: Path

    def write(self, folder: Path) -> Path:
        """Write nginx's configuration and make its folders; the file.

        Raises:
            GatewayError: A certificate is not there, an address cannot be, or the SuperLink is not on the loopback.
        """
        _host_and_port("the address that devices reach", self.listen)
        host = _host_and_port("the SuperLink's address", self.link)
        if host not in ("127.0.0.1", "localhost", "[::1]"):
            raise GatewayError(
                f"the SuperLink must be on the loopback, 127.0.0.1, got {host}: strangers would reach it"
            )
        for name in ("ca.crt", "server.pem", "server.key"):
            if not (self.certificates / name).is_file():
                raise GatewayError(
                    f"{self.certificates / name} is not there: docs/how-to/secure_fleet.md has the commands for it"
                )
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        folder, path = folder.absolute(), folder.absolute() / CONF
        text = _TEMPLATE.format(
            folder=folder,
            certificates=self.certificates.absolute(),
            listen=self.listen,
            link=self.link,
            fleet=FLEET,
            calls="|".join(CALLS),
            body=LARGEST_BODY,
        )
        if any(character in f"{folder}{self.certificates.absolute()}" for character in '"$\n'):
            raise GatewayError(f'a folder of the gateway must have none of " $ in its name, got {folder}')
        path.write_text(text, encoding="utf-8")
        return path


def nginx() -> str | None:
    """The nginx program of this machine, or None."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")


def _host_and_port(what: str, address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536) or any(c in address for c in " ;{}\"'\n"):
        raise GatewayError(f"{what} must be HOST:PORT, got {address!r}")
    return host
