"""The three forms by name: recognising, reading and writing them.

v1       version 1.0, server list
pods     version 0.1, group list by pod (ranks follow from the order)
devices  version 0.1, group list by device (each with its rank)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

from trainshed.ranktables import devices, pods, v1
from trainshed.ranktables.fields import Json, kind
from trainshed.ranktables.model import COMPLETED, RankTable, RankTableError, RankTableNotReadyError


class Form(StrEnum):
    V1 = "v1"
    PODS = "pods"
    DEVICES = "devices"


_READERS = {Form.V1: v1.read, Form.PODS: pods.read, Form.DEVICES: devices.read}


def parse(text: str) -> Json:
    """The JSON object in the text of a rank table."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RankTableError(
            f"the rank table is not JSON: {error}", "correct the file or write it again"
        ) from error
    if not isinstance(document, dict):
        raise RankTableError(f"the rank table is {kind(document)}, not a JSON object", "write it again")
    return document


def detect(document: Json) -> Form:
    """Which form a document has; raises when it is none, or not filled yet."""
    if "server_list" in document:
        return Form.V1
    groups = document.get("group_list")
    if isinstance(groups, list):
        for group in groups:
            instances = group.get("instance_list") if isinstance(group, Mapping) else None
            for instance in instances if isinstance(instances, list) else ():
                if isinstance(instance, Mapping):
                    by_pod = "pod_name" in instance or "rank_id" not in instance
                    return Form.PODS if by_pod else Form.DEVICES
    status = document.get("status")
    if isinstance(status, str) and status != COMPLETED:
        raise RankTableNotReadyError(
            f'the rank table has status "{status}" and no devices yet', "read it again until it is completed"
        )
    raise RankTableError(
        "the document is not a rank table: it has neither server_list nor a group_list with instances",
        "give a table with server_list (version 1.0), or a group_list whose instances name pods or devices",
    )


def read(text: str) -> RankTable:
    """The table in a text of any form."""
    document = parse(text)
    return _READERS[detect(document)](document)


def write(table: RankTable, form: Form, *, group_name: str = pods.GROUP_NAME, job_id: str = "job0") -> str:
    """The text of the table in the given form; only `pods` uses the two names."""
    match form:
        case Form.V1:
            return v1.write(table)
        case Form.PODS:
            return pods.write(table, group_name=group_name, job_id=job_id)
        case Form.DEVICES:
            return devices.write(table)
