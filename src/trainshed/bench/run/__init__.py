"""Workloads, and running them."""
