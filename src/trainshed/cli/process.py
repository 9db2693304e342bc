"""What commands that start no run need of this process: its Trainshed home and its object store.

Commands about runs ask `Client()` instead, which decides in the same way.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainshed.access import StoreAccess
from trainshed.home import trainshed_home


def home() -> Path:
    return trainshed_home(os.environ)


def store_access() -> StoreAccess:
    return StoreAccess.from_environment(os.environ, home())
