"""Workloads, meters, scores, reports, Tester, ais-bench."""
