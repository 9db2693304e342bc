"""What runs on a node: staging, coordination, processes, metering, services."""
