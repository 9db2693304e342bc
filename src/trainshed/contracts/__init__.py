"""One file per platform: what a script finds (variables, arguments, files, paths)."""
