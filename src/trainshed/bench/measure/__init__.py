"""From the evidence of a run to its numbers."""
