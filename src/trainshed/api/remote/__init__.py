"""Client and Run over HTTP: the same methods, on a Trainshed server."""

from trainshed.api.remote.client import RemoteClient
from trainshed.api.remote.run import RemoteRun

__all__ = ["RemoteClient", "RemoteRun"]
