"""Whether a result holds: rules, faults, score, check."""
