"""Rank tables and host files: reading, writing, converting, checking.

Pure apart from `reach`. Knows no topology, launcher, contract or engine.
"""

from trainshed.ranktables.assignment import check_assignment
from trainshed.ranktables.check import check, check_text
from trainshed.ranktables.findings import Finding, Severity
from trainshed.ranktables.forms import Form, detect, parse, read, write
from trainshed.ranktables.model import (
    COMPLETED,
    INITIALIZING,
    RankTable,
    RankTableError,
    RankTableNotReadyError,
    TableDevice,
    TableServer,
)

__all__ = [
    "COMPLETED",
    "INITIALIZING",
    "Finding",
    "Form",
    "RankTable",
    "RankTableError",
    "RankTableNotReadyError",
    "Severity",
    "TableDevice",
    "TableServer",
    "check",
    "check_assignment",
    "check_text",
    "detect",
    "parse",
    "read",
    "write",
]
