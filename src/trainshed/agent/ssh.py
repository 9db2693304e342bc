"""SSH between the nodes of a run: an sshd of the node's own, without a system daemon and without passwords.

Every node makes its keys when the run starts; private halves never leave its
home, public ones are exchanged through the coordinator. A session gets the
node's environment, and dies with the run as everything below the agent does.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainshed.agent.node_access import NodeAccess
from trainshed.errors import TrainshedError
from trainshed.plan.model import NodePlan, Plan, ProcessPlan

Card = dict[str, str]
"""The public keys of a node: `host` proves the node to its peers, `user` opens them to it."""

_KEYGEN_LIMIT = 20.0
_LISTEN_LIMIT = 20.0
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SFTP = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")


class SshError(TrainshedError):
    """SSH between the nodes could not be set up; the message says what is missing."""

    code = "ssh"


class Ssh:
    """One node's end of it."""

    PROCESS = "sshd"

    def __init__(self, plan: Plan, node: NodePlan, access: NodeAccess) -> None:
        self._plan, self._node, self._access = plan, node, access
        self._seen = f"{node.home}/.ssh"
        self._real = Path(access.real(self._seen))
        self._ports = _ports(plan, node)
        self.card: Card = {}

    def make_keys(self) -> None:
        """Fresh keys for this attempt."""
        if shutil.which("ssh-keygen") is None or _sshd() is None:
            raise SshError("SSH between nodes needs sshd", "install it: apt-get install openssh-server")
        self._real.mkdir(parents=True, exist_ok=True)
        self._real.chmod(0o700)
        self.card = {"host": self._make("host_key"), "user": self._make("id_ed25519")}

    def configure(self, cards: Sequence[Card], env: Mapping[str, str]) -> None:
        """All files of both ends, once everybody's public keys are known."""
        names = [node.name for node in self._plan.nodes]
        known = [f"{name} {card['host']}" for name, card in zip(names, cards, strict=True)]
        self._write("known_hosts", "\n".join(known) + "\n")
        self._write("authorized_keys", "".join(f"{card['user']}\n" for card in cards))
        self._write("config", self._client_config())
        self._write("environment", _pairs(env))
        self._write("session", _SESSION.format(environment=shlex.quote(f"{self._seen}/environment")))
        self._write("sshd_config", self._server_config())
        if os.geteuid() == 0:
            # sshd insists on this folder for its unprivileged half, and offers no other.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)

    def process(self) -> ProcessPlan:
        argv = (_sshd() or "sshd", "-D", "-e", "-f", f"{self._seen}/sshd_config")
        return ProcessPlan(self.PROCESS, argv, self._node.home, helper=True)

    def await_listening(self) -> None:
        """Until peers can come in; every node is past this before any rank starts."""
        deadline = time.monotonic() + _LISTEN_LIMIT
        for port in self._ports:
            while True:
                try:
                    _greet((self._node.address, port))
                    break
                except OSError as error:
                    if time.monotonic() > deadline:
                        where = f"{self._node.address}:{port}"
                        raise SshError(
                            f"sshd does not answer at {where} within {_LISTEN_LIMIT:.0f} s: {error}",
                            f"see node-{self._node.index}/helpers/sshd.log",
                        ) from error
                    time.sleep(0.01)

    def _make(self, name: str) -> str:
        path = self._real / name
        for old in (path, path.with_suffix(".pub")):
            old.unlink(missing_ok=True)
        comment = f"node-{self._node.index}"
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
        try:
            subprocess.run(
                argv, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=_KEYGEN_LIMIT
            )
        except subprocess.SubprocessError as error:
            raise SshError(f"ssh-keygen cannot make {self._seen}/{name}: {error}") from error
        return path.with_suffix(".pub").read_text().strip()

    def _write(self, name: str, content: str) -> None:
        path = self._real / name
        path.unlink(missing_ok=True)
        # Made for its owner alone from the first byte on: the environment may hold secrets.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(content)

    def _client_config(self) -> str:
        count = Counter(node.address for node in self._plan.nodes)
        blocks: list[str] = []
        everybody: list[str] = []
        for node, (address, names), port in zip(
            self._plan.nodes, self._plan.hosts, self._plan.ssh, strict=True
        ):
            called = [*names, address] if count[address] == 1 else list(names)
            everybody += called
            settings = {"HostName": address, "Port": str(port), "HostKeyAlias": node.name}
            blocks += [f"Host {' '.join(called)}", *_settings(settings)]
        common = {
            "User": getpass.getuser(),
            "IdentityFile": f'"{self._seen}/id_ed25519"',
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": f'"{self._seen}/known_hosts"',
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": "30",
            "LogLevel": "ERROR",
        }
        return "\n".join([*blocks, f"Host {' '.join(everybody)}", *_settings(common)]) + "\n"

    def _server_config(self) -> str:
        listen = [f"ListenAddress {self._node.address}:{port}" for port in self._ports]
        sftp = next((path for path in _SFTP if Path(path).exists()), None)
        lines = [
            *listen,
            f'HostKey "{self._seen}/host_key"',
            f'AuthorizedKeysFile "{self._seen}/authorized_keys"',
            f"AllowUsers {getpass.getuser()}",
            # The login shell starts first, and would read the settings of the user's home on this machine.
            f'SetEnv HOME="{self._node.home}"',
            f"ForceCommand /bin/bash {shlex.quote(self._seen + '/session')}",
            *([f"Subsystem sftp {sftp}"] if sftp else []),
            *_SERVER,
        ]
        return "\n".join(lines) + "\n"


def _ports(plan: Plan, node: NodePlan) -> tuple[int, ...]:
    """Its own port, and the first node's too where no other node has this address.

    `horovodrun -p` knows one port for all nodes, and people give it the first node's.
    """
    port, first = plan.ssh[node.index], plan.ssh[0]
    alone = [other.address for other in plan.nodes].count(node.address) == 1
    return (port, first) if alone and first != port else (port,)


def _sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin")


def _greet(address: tuple[str, int]) -> None:
    """Say hello as a client does, so that sshd does not log an aborted connection."""
    with socket.create_connection(address, timeout=2.0) as connection:
        connection.sendall(b"SSH-2.0-Trainshed\r\n")
        if not connection.recv(64).startswith(b"SSH-"):
            raise ConnectionError("something else answers there")


def _settings(values: Mapping[str, str]) -> list[str]:
    return [f"    {name} {value}" for name, value in values.items()]


def _pairs(env: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\0" for name, value in env.items() if _VARIABLE.fullmatch(name))


_SERVER = (
    "PidFile none",
    "PubkeyAuthentication yes",
    "AuthenticationMethods publickey",
    "PasswordAuthentication no",
    "KbdInteractiveAuthentication no",
    "PermitRootLogin prohibit-password",
    "UsePAM no",
    # The files are in the node's own folder, whose parents may belong to the user who runs the machine.
    "StrictModes no",
    "UseDNS no",
    "PrintMotd no",
    "PrintLastLog no",
    "X11Forwarding no",
    "PermitTunnel no",
    "LoginGraceTime 60",
    # A launcher opens a session for every rank, all at once.
    "MaxStartups 4096",
    "MaxSessions 4096",
    "LogLevel ERROR",
)

_SESSION = """while IFS= read -r -d '' pair; do export "$pair"; done < {environment}
cd "$HOME" || exit
[ -z "$SSH_ORIGINAL_COMMAND" ] && exec /bin/bash -i
exec /bin/bash -c "$SSH_ORIGINAL_COMMAND"
"""
