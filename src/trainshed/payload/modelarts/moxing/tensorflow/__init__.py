"""`import moxing.tensorflow as mox`: the same functions under their older name."""

from moxing import cache, file, framework

__all__ = ["cache", "file", "framework"]
