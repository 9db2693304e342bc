"""The enumerations of a job. Imported on nodes too, so this imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum


class DeviceKind(StrEnum):
    """What computes on a node."""

    CPU = "cpu"
    NVIDIA = "nvidia"
    ASCEND = "ascend"


class Mode(StrEnum):
    """Whether all nodes train one model, or every node trains its own."""

    DISTRIBUTED = "distributed"
    SINGLE_SERVER = "single_server"


class Service(StrEnum):
    """What may run beside the ranks for the user."""

    SSH = "ssh"
    JUPYTER = "jupyter"
    TENSORBOARD = "tensorboard"
