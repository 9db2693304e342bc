"""Runs an unpacked ais-bench package through an engine of Trainshed.

It turns the package's configuration into a JobSpec and the job's result files
into a result folder; how jobs run and how results are judged is not its work.
"""
