"""A real Slurm of several virtual nodes on this machine's loopback, for tests.

No systemd, database or cgroups: munged, slurmctld and one slurmd a node, all
in the foreground as children of whoever starts it, so that nothing is left.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

INSTALL = "apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge"
PROGRAMS = ("sbatch", "srun", "slurmctld", "slurmd", "munged")


def missing() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name) is None]


def wait_for(what: str, condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Until the condition holds; AssertionError names what did not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.05)


class Cluster:
    """Nodes node1 … nodeN, each with CPUs and 8 devices of GRES `npu`."""

    def __init__(self, folder: Path, nodes: int = 4, cpus: int = 8) -> None:
        self.folder, self.nodes, self.cpus = folder, nodes, cpus
        self.conf = folder / "slurm.conf"
        self.names = [f"node{i}" for i in range(1, nodes + 1)]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._first_port = 0

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        for name in ("run", "state", "log", *(f"spool/{node}" for node in self.names)):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        self._first_port = _free_ports(self.nodes + 1)
        self.conf.write_text(self._configuration())
        (self.folder / "gres.conf").write_text(self._devices())
        self._run("munged", "munged", "--foreground", "--force", *self._munge())
        wait_for("munge socket", (self.folder / "run/munge.socket").exists)
        self.start_controller()
        for node in self.names:
            self.start_node(node)
        self.wait_idle()

    def start_controller(self) -> None:
        self._run("slurmctld", "slurmctld", "-D", "-f", str(self.conf))

    def start_node(self, node: str) -> None:
        self._run(node, "slurmd", "-D", "-f", str(self.conf), "-N", node)

    def wait_idle(self, seconds: float = 60.0) -> None:
        """All nodes idle, and answering: Slurm writes `idle*` of one it has not heard of since it started."""
        wanted = ["idle"] * self.nodes
        wait_for(
            "idle nodes",
            lambda: self.look("sinfo", "-h", "-N", "-p", "low", "-o", "%t").split() == wanted,
            seconds,
        )

    def heal(self) -> None:
        """Whatever a test has left dead lives again."""
        if "slurmctld" not in self._processes or self._processes["slurmctld"].poll() is not None:
            self.start_controller()
        for node in self.names:
            if node not in self._processes or self._processes[node].poll() is not None:
                self.start_node(node)
        for node in self.names:
            if not self.look("sinfo", "-h", "-n", node, "-p", "low", "-o", "%t").startswith("idle"):
                self.look("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self.wait_idle()

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End slurmctld or a node's slurmd, as if it had crashed."""
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(20)

    def stop(self) -> None:
        self.look("scancel", "-u", pwd.getpwuid(os.getuid()).pw_name)
        for name in list(self._processes)[::-1]:
            process = self._processes.pop(name)
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)

    def ask(self, *command: str) -> str:
        """What one of Slurm's commands answers; it must succeed."""
        done = self._done(command)
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout.strip()

    def look(self, *command: str) -> str:
        """As `ask`, but nothing when it fails: for waiting and for clearing up."""
        done = self._done(command)
        return done.stdout.strip() if done.returncode == 0 else ""

    def _done(self, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=os.environ | self.env, capture_output=True, text=True, timeout=30, check=False
        )

    def _run(self, name: str, *command: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            # CUDA and Slurm variables of the caller must not reach the daemons, hence jobs.
            env = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "HOME": os.environ.get("HOME", "/")}
            self._processes[name] = subprocess.Popen(
                command, env=env | self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _devices(self) -> str:
        """Device files that Slurm can tell apart, where they may be made; else a mere count."""
        how = "Count=8"
        if os.getuid() == 0:
            how = f"File={self.folder}/dev-npu[0-7]"
            for index in range(8):
                os.mknod(self.folder / f"dev-npu{index}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        return f"NodeName=node[1-{self.nodes}] Name=npu {how}\n"

    def _munge(self) -> list[str]:
        folder = self.folder
        return [
            f"--key-file={folder}/munge.key",
            f"--socket={folder}/run/munge.socket",
            f"--pid-file={folder}/run/munged.pid",
            f"--log-file={folder}/log/munged.log",
            f"--seed-file={folder}/run/munged.seed",
        ]

    def _configuration(self) -> str:
        user, folder, first, count = (
            pwd.getpwuid(os.getuid()).pw_name,
            self.folder,
            self._first_port,
            self.nodes,
        )
        nodes = f"node[1-{count}]"
        return f"""\
ClusterName=shed
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={first}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=100000,sched_interval=2,bf_interval=2
ReturnToService=2
SlurmdTimeout=8
SlurmctldTimeout=30
KillWait=5
MinJobAge=600
JobRequeue=1
MaxJobCount=5000
GresTypes=npu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={nodes} NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first + 1}-{first + count}] \
CPUs={self.cpus} RealMemory=4000 Gres=npu:8
PartitionName=low Nodes={nodes} Default=YES PriorityTier=1
PartitionName=high Nodes={nodes} PriorityTier=10 PreemptMode=OFF
"""


def _free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody uses now."""
    for first in range(21000 + os.getpid() % 500 * 10, 32000, 50):
        held = []
        try:
            for port in range(first, first + count):
                sock = socket.socket()
                held.append(sock)
                sock.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for sock in held:
                sock.close()
    raise AssertionError("no free ports")
