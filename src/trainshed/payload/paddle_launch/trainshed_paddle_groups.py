"""Gives every group of Paddle's ranks on gloo its own rendezvous.

Paddle 3 makes two meshes of connections for a group. The addresses of the second are in one store for all
groups, under the bare number of the rank. A rank that comes to it before the others reads where they
listened for the group before (fleet always makes a second group): "Connection refused", now and then.
Standard library only: the job's own Python imports it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from trainshed_overlay import Finder, say  # type: ignore[import-not-found,unused-ignore]

_TRIES = 5
_kept: list[Any] = []


def _collective(module: Any) -> None:
    import inspect

    original, make = module._new_process_group_impl, module.core.TCPStore
    signature = inspect.signature(original)
    if not {"backend", "store", "rank", "group_id"} <= set(signature.parameters):
        raise AttributeError("_new_process_group_impl takes other arguments")

    def new_group(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        bound.apply_defaults()
        values = bound.arguments
        # The first group (number 0) finds an empty store.
        if values["backend"] == "gloo" and values["group_id"]:
            values["store"] = _group_store(make, values["store"], values["rank"], values["group_id"])
        return original(*bound.args, **bound.kwargs)

    module._new_process_group_impl = new_group


def _group_store(make: Any, store: Any, rank: int, group: int) -> Any:
    """A store for this group alone, kept by its first rank; the others learn from `store` where it is.

    They wait for it as long as Paddle's stores wait for anything (15 minutes).
    """
    key = f"trainshed/group/{group}"
    if rank == 0:
        group_store, address = _serve(make)
        store.set(key, address)
        if not _kept:
            say("Paddle's groups on gloo get a store each: in a common one they find each other's addresses")
    else:
        store.wait(key)
        host, _, port = bytes(store.get(key)).decode().rpartition(":")
        group_store = make(host, int(port), False, 1)
    _kept.append(group_store)
    return group_store


def _serve(make: Any) -> tuple[Any, str]:
    import socket

    host = os.environ["PADDLE_CURRENT_ENDPOINT"].rpartition(":")[0]
    for tries in range(1, _TRIES + 1):
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = probe.getsockname()[1]
        try:
            group_store = make(host, port, True, 1)
            break
        except Exception:
            # Another took the port meanwhile; Paddle has many names for that.
            if tries == _TRIES:
                raise
    return group_store, f"{host}:{port}"


def install() -> None:
    sys.meta_path.insert(0, Finder({"paddle.distributed.collective": _collective}))
