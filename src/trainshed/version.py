"""The release of Trainshed."""

VERSION = "0.1.0"
