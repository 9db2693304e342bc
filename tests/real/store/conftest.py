"""Fixtures of the store's tests, shared with tests/store."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "store"))

from storekit import bucket, client, clients, endpoint, listing, store  # noqa: F401
