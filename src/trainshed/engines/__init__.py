"""Where nodes come from: one file or folder per engine."""
