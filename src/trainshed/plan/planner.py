"""plan(): spec + topology + site → Plan. Pure: it reads no file, no clock and no environment.

Nothing past this point decides what a rank sees. Launcher and contract are
loaded by name and asked one after the other; where both set a variable the
contract wins, since it is what the script was written for, and the job's own
`env` wins over both.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from urllib.parse import quote

from trainshed import registry
from trainshed.devices import visible_env
from trainshed.errors import UsageError
from trainshed.plan import ssh
from trainshed.plan.model import FilePlan, NodePlan, Plan, ProcessPlan, Transfer
from trainshed.plan.topology import Node, Port, Topology
from trainshed.plan.view import Layout, Site, View
from trainshed.spec.job import Channel, JobSpec
from trainshed.spec.kinds import DeviceKind, Mode, Service

_RESERVED = "TRAINSHED_"
_LOG_EVERY = 30.0
_LONGEST = (128 << 10) - 1024
"""The kernel takes no variable beyond 128 KiB, its name included; one may quote another and add a little."""


def plan(job: JobSpec, topology: Topology, site: Site, run: str) -> Plan:
    """What will happen, for every node, or a UsageError that says why it cannot."""
    reserved = sorted(name for name in (*job.env, *job.secrets) if name.startswith(_RESERVED))
    if reserved:
        raise UsageError(
            f"env: {', '.join(reserved)} is reserved for Trainshed", "choose a name without this prefix"
        )
    if topology.kind is DeviceKind.CPU:
        site = replace(site, emulate=False)  # there is nothing to emulate
    view = View(run, job, topology, site)
    return _Planner(view).whole()


class _Planner:
    """Holds what is asked once and needed for every node."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.launcher = registry.load("launcher", view.job.launcher)
        self.contract = registry.load("contract", view.job.contract)
        _check_options(view.job, {**self.launcher.options, **self.contract.options})
        self.contract.check(view)
        self.layout: Layout = self.contract.layout(view)
        self.ssh = self._has_ssh()
        home = () if self.layout.image_home and view.job.image else (self.layout.home,)
        private = (*home, "/tmp", "/cache", *self.layout.private)  # noqa: S108 (a node's own)
        more = (ssh.HOSTFILE.rpartition("/")[0],) if self.ssh else ()
        self.private = tuple(sorted({path.rstrip("/") for path in (*private, *more)}))

    def whole(self) -> Plan:
        view, job, topology = self.view, self.view.job, self.view.topology
        first = topology.nodes[0]
        coordinator = (first.address, first.port(Port.COORDINATOR))
        nodes = tuple(self._node(node, coordinator) for node in topology.nodes)
        return Plan(
            run=view.run,
            launcher=job.launcher,
            contract=job.contract,
            kind=topology.kind.value,
            emulated=view.site.emulate,
            isolated=view.site.isolated,
            size=topology.size,
            image=job.image,
            env=self._common_env(nodes),
            files=self._common_files(),
            hosts=tuple((node.address, self._names(node)) for node in topology.nodes),
            secrets=tuple(sorted(job.secrets)),
            grace=job.grace,
            timeout=job.timeout,
            memory=job.resources.memory,
            notes=(
                *_emulated(view.site),
                *_not_started(job),
                *self.launcher.notes(view),
                *self.contract.notes(view),
                *self._home_notes(),
            ),
            nodes=nodes,
            ssh=ssh.ports(topology) if self.ssh else (),
        )

    def _home_notes(self) -> list[str]:
        """What becomes of a home that its contract wants kept."""
        site = self.view.site
        if not self.layout.kept_home:
            return []
        if not site.homes:
            return [
                "home is separate on each node and ends with the run: its nodes share no folder to keep it in"
            ]
        if not site.isolated:
            return [
                "home is separate on each node, since nothing can be mounted without isolation; it is kept apart"
            ]
        return []

    def _kept_home(self, node: Node) -> str:
        site = self.view.site
        if not self.layout.kept_home or not site.homes:
            return ""
        # One folder a name: never a path, never the folder above, never that of another name.
        name = quote(site.user, safe="@")
        mine = f"{site.homes}/{name if name.strip('.') else name.replace('.', '%2E')}"
        return mine if site.isolated else f"{mine}/left/{self.view.run}-node-{node.index}"

    def _folder(self, path: str) -> str:
        """Where a private directory is below the node's scratch; not within a home that others share."""
        shared = self.layout.kept_home and self.view.site.homes and self.view.site.isolated
        below = path.startswith(f"{self.layout.home}/")
        return f"own{path}" if shared and below else path.lstrip("/")

    def _common_files(self) -> tuple[FilePlan, ...]:
        view = self.view
        files = {item.path: item for item in self.contract.common_files(view)}
        if self.ssh and view.job.mode is Mode.DISTRIBUTED:
            world = view.world(view.topology.nodes[0])
            files.setdefault(ssh.HOSTFILE, FilePlan(ssh.HOSTFILE, ssh.hostfile(world)))
        return tuple(files.values())

    def _has_ssh(self) -> bool:
        job = self.view.job
        promised = self.contract.promises_ssh and job.resources.nodes > 1
        return Service.SSH in job.services or promised or self.launcher.needs_ssh(self.view)

    def _names(self, node: Node) -> tuple[str, ...]:
        names = (node.name, *self.contract.names(self.view, node), *(ssh.names(node) if self.ssh else ()))
        return tuple(dict.fromkeys(names))

    def _common_env(self, nodes: tuple[NodePlan, ...]) -> dict[str, str]:
        view = self.view
        env = {
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "TRAINSHED_RUN_ID": view.run,
            "TRAINSHED_NODES": str(len(view.topology.nodes)),
            "TRAINSHED_DEVICE_KIND": view.topology.kind.value,
        }
        if view.site.emulate:
            env["TRAINSHED_EMULATED"] = "1"
        env |= dict(view.site.env) | dict(view.site.store) | dict(self.launcher.common_env(view))
        env |= dict(self.contract.common_env(view))
        if self.ssh:
            env |= ssh.common_env(nodes, (*view.job.secrets, *view.site.keys))
        _check_lengths(view.job, env)
        return env

    def _node(self, node: Node, coordinator: tuple[str, int]) -> NodePlan:
        view, job, layout, site = self.view, self.view.job, self.layout, self.view.site
        folders = {**layout.inputs, **layout.outputs}
        placed = {name: site.path(node, folder) for name, folder in folders.items()}
        code = site.path(node, layout.code)
        beside = f"{code}/{job.entry or ''}".rpartition("/")[0]
        return NodePlan(
            index=node.index,
            name=node.name,
            address=node.address,
            coordinator=coordinator,
            work_dir=site.path(node, layout.work),
            private=tuple((site.path(node, path), self._folder(path)) for path in self.private),
            env=self._node_env(node, placed),
            files=(
                *self._tools(node),
                *(_placed(item, site, node) for item in self.contract.node_files(view, node)),
            ),
            code=Transfer("code", job.code, code, left_out=job.inputs_in_code) if job.code else None,
            inputs=tuple(
                Transfer(c.name, c.source or "", placed[c.name]) for c in job.inputs if c.name in placed
            ),
            outputs=tuple(_upload(c, placed[c.name]) for c in job.outputs if c.name in placed),
            pre_start=(f"{code}/{job.pre_start}",) if job.pre_start else (),
            processes=tuple(self._processes(node, code)),
            folders=tuple(site.path(node, folder) for folder in layout.folders),
            hooks=tuple(f"{beside}/{name}" for name in self.contract.hooks(view)),
            hook_dir=site.path(node, self.contract.hook_dir(view)),
            requirements=tuple(f"{code}/{name}" for name in self._requirements()),
            log=_log(job, self.contract.log_name(view, node)),
            home=site.path(node, layout.home),
            kept_home=self._kept_home(node),
            links=tuple((site.path(node, a), site.path(node, b)) for a, b in layout.links.items()),
        )

    def _requirements(self) -> list[str]:
        """The job's own list comes first, and its contract's are not installed twice."""
        listed = [self.view.job.requirements] if self.view.job.requirements else []
        return list(dict.fromkeys((*listed, *self.contract.requirements(self.view))))

    def _tools(self, node: Node) -> list[FilePlan]:
        """Programs that stand before the system's, and the host file that some of them read."""
        site = self.view.site
        scripts = dict(self.launcher.tools(self.view)) if self.view.job.command is not None else {}
        files = []
        if self.ssh:
            scripts |= ssh.clients(site.path(node, self.layout.home))
            if self.view.job.mode is Mode.SINGLE_SERVER:
                files = [FilePlan(site.path(node, ssh.HOSTFILE), ssh.hostfile(self.view.world(node)))]
        return [FilePlan(f"{site.tools(node)}/{name}", text, 0o755) for name, text in scripts.items()] + files

    def _node_env(self, node: Node, placed: dict[str, str]) -> dict[str, str]:
        view, site = self.view, self.view.site
        folders = [site.tools(node), site.python.rpartition("/")[0], site.search_path]
        env = {
            "HOME": site.path(node, self.layout.home),
            "TMPDIR": site.path(node, "/tmp"),  # noqa: S108 (a node's own)
            "HOSTNAME": node.name,
            "PATH": ":".join(folder for folder in folders if folder),
            "PYTHONPATH": ":".join(self._modules()),
            "TRAINSHED_NODE": str(node.index),
            "TRAINSHED_NODE_ADDRESS": node.address,
            "TRAINSHED_LOCAL_SIZE": str(len(node.devices)),
            "TRAINSHED_WORLD_SIZE": str(view.world(node).size),
        }
        env |= {
            f"TRAINSHED_CHANNEL_{name.upper().replace('-', '_')}": folder for name, folder in placed.items()
        }
        env |= {
            channel.name.replace("-", "_"): placed[channel.name]
            for channel in (*view.job.inputs, *view.job.outputs)
            if channel.name in placed and channel.access in ("env", "both")
        }
        saved = [placed[channel.name] for channel in view.job.outputs if channel.name in placed]
        if saved:
            env["TRAINSHED_OUTPUT_DIR"] = saved[0]
        if self.ssh:
            env["TRAINSHED_HOSTFILE"] = site.path(node, ssh.HOSTFILE)
        env |= visible_env(
            view.topology.kind, tuple(device.index for device in node.devices), site.cpus, site.emulate
        )
        env |= self._start_env(node)
        env |= self.launcher.node_env(view, node)
        env |= self.contract.node_env(view, node)
        if "PYTHONPATH" in view.job.env:
            # The modules promised to the script stay, whatever a job adds.
            return env | view.job.env | {"PYTHONPATH": f"{view.job.env['PYTHONPATH']}:{env['PYTHONPATH']}"}
        return env | view.job.env

    def _modules(self) -> list[str]:
        """Where Python finds what is given to scripts: each member's own folders, then what all get."""
        site = self.view.site
        folders = [*(["emulation"] if site.emulate else ()), *self.launcher.site, *self.contract.site]
        return [f"{site.library}/{folder}" for folder in ("start", *folders, "common")]

    def _start_env(self, node: Node) -> dict[str, str]:
        """What is laid over frameworks at the start of every Python, and where ranks meet at their end."""
        start = [*self.launcher.start, *(["trainshed_emulation"] if self.view.site.emulate else ())]
        if not start:
            return {}
        master = self.view.world(node).master
        meeting = f"{master.address}:{master.port(Port.MEETING)}"
        return {"TRAINSHED_START": " ".join(start), "TRAINSHED_LEAVE": meeting}

    def _processes(self, node: Node, code: str) -> list[ProcessPlan]:
        view, job = self.view, self.view.job
        if job.command is not None:
            if self.launcher.command_on_first and node.index != view.world(node).master.index:
                return []
            line = job.command
            # First, so that no option takes a positional argument for its value, and subcommands work.
            if arguments := (*job.args, *self.contract.command_arguments(view, node)):
                line += " " + shlex.join(arguments)
            cwd = view.site.path(node, self.layout.work)
            env = self._engine_env(node, None)
            serves = self.launcher.serves(view, node, None)
            return [ProcessPlan(f"node-{node.index}", ("/bin/bash", "-c", line), cwd, env, serves=serves)]
        site = view.site
        program = _interpreter(site, f"{code}/{job.entry}")
        argv = (*program, *job.args, *self.contract.arguments(view, node))
        helpers = [
            ProcessPlan(
                item.name, item.argv, site.private_folder(node, item.name), dict(item.env), helper=True
            )
            for item in self.launcher.helpers(view, node)
        ]
        return helpers + [self._rank(node, local, argv) for local in range(len(node.devices))]

    def _engine_env(self, node: Node, local: int | None) -> dict[str, str]:
        made = self.view.site.process_env
        return dict(made(self.view.world(node), node, local)) if made else {}

    def _rank(self, node: Node, local: int, argv: tuple[str, ...]) -> ProcessPlan:
        view = self.view
        rank = node.first_rank + local
        env = self._engine_env(node, local) | {
            "TRAINSHED_RANK": str(rank),
            "TRAINSHED_WORLD_RANK": str(view.world(node).rank(node, local)),
            "TRAINSHED_LOCAL_RANK": str(local),
        }
        env |= self.launcher.rank_env(view, node, local)
        env |= self.contract.rank_env(view, node, local)
        cwd = view.site.path(node, self.contract.rank_dir(view, node, local))
        env |= {name: value for name, value in view.job.env.items() if name in env}
        serves = self.launcher.serves(view, node, local)
        return ProcessPlan(f"rank-{rank}", argv, cwd, env, rank, serves=serves)


def _interpreter(site: Site, entry: str) -> tuple[str, ...]:
    if entry.endswith(".py"):
        return (site.python, entry)
    return ("/bin/bash", entry) if entry.endswith((".sh", ".bash")) else (entry,)


def _check_options(job: JobSpec, known: dict[str, str]) -> None:
    for name in job.options:
        if name not in known:
            listing = "; ".join(f"{key}: {text}" for key, text in known.items()) or "there are none"
            raise UsageError(
                f"options.{name}: launcher {job.launcher} and contract {job.contract} have no such option",
                listing,
            )


def _check_lengths(job: JobSpec, env: dict[str, str]) -> None:
    """Refuse a job whose processes no kernel would start: lists of all ranks grow with the job."""
    for name, value in (env | job.env).items():
        if (size := len(value.encode())) <= _LONGEST:
            continue
        what = f"resources: {job.resources.shape} makes {name}"
        hint = f"launcher {job.launcher} and contract {job.contract} list all nodes in it: ask for fewer"
        if name in job.env:
            what, hint = f"env.{name} is", "put it into a file of the code"
        raise UsageError(f"{what} {size >> 10} KiB long, and the kernel's limit for a variable is 128", hint)


def _emulated(site: Site) -> tuple[str, ...]:
    if not site.emulate:
        return ()
    return (
        "EMULATED: the devices are emulated on the CPU; times and accuracy say nothing about real devices",
    )


def _not_started(job: JobSpec) -> tuple[str, ...]:
    """Services that need a server in front of them, which a single run does not have."""
    names = [service.value for service in job.services if service is not Service.SSH]
    return (f"services: {', '.join(names)} requested, but this engine does not start it",) if names else ()


def _placed(item: FilePlan, site: Site, node: Node) -> FilePlan:
    return replace(item, path=site.path(node, item.path))


def _log(job: JobSpec, name: str) -> Transfer | None:
    if not job.log_url:
        return None
    return Transfer(name, "", job.log_url.rstrip("/") + "/", _LOG_EVERY)


def _upload(channel: Channel, folder: str) -> Transfer:
    return Transfer(channel.name, folder, channel.target or "", channel.every, channel.predownload)
