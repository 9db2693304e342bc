"""The HTTP API: routes that ask who is there, and hand over to the platform."""
