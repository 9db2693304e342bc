"""Trainshed: run a distributed training job anywhere, and trust its numbers."""

__version__ = "0.1.0"
