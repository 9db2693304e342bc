"""Object stores and files: URLs, one copy engine, credentials, the embedded store's life."""
