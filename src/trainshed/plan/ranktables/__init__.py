"""Rank tables and host files: reading, writing, converting, checking.

Pure apart from `reach`. Knows no topology, launcher, contract or engine.
"""

from trainshed.plan.ranktables.assignment import check_assignment
from trainshed.plan.ranktables.check import check, check_text
from trainshed.plan.ranktables.findings import Finding, Severity
from trainshed.plan.ranktables.forms import Form, detect, parse, read, write
from trainshed.plan.ranktables.model import (
    COMPLETED,
    INITIALIZING,
    Device,
    RankTable,
    RankTableError,
    RankTableNotReadyError,
    Server,
)

__all__ = [
    "COMPLETED",
    "INITIALIZING",
    "Device",
    "Finding",
    "Form",
    "RankTable",
    "RankTableError",
    "RankTableNotReadyError",
    "Server",
    "Severity",
    "check",
    "check_assignment",
    "check_text",
    "detect",
    "parse",
    "read",
    "write",
]
