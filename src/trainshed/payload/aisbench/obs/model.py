"""`obs.model`: packages import it and use nothing of it."""
