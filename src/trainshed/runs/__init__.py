"""The run directory: events, states, logs, results."""
