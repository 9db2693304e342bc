"""The platform server: accounts, queue, index of runs, API."""
