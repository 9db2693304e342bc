"""Launcher `command`: no framework. A process finds its place in the TRAINSHED_* variables."""

from __future__ import annotations

from trainshed.launchers.base import Launcher

LAUNCHER = Launcher()
