"""Lets tests of this folder import `packages`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "aisbench"))
