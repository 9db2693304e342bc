"""The report of a result: one self-contained HTML file, Markdown and CSV. Reads a result folder only."""
