"""`from moxing.framework import file`."""

from moxing.framework import file

__all__ = ["file"]
