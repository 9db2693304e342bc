"""The one way to submit, list, follow and stop runs: Client and Run."""

from trainshed.api.client import Client
from trainshed.api.run import Run, RunFailed

__all__ = ["Client", "Run", "RunFailed"]
