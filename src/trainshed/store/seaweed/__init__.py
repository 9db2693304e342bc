"""The embedded object store: SeaweedFS, started and configured by Trainshed."""
