"""The `modelarts` SDK as ais-bench packages use it: sessions and estimators, on engines of Trainshed.

Laid before a package's own scripts on their PYTHONPATH, never installed. Whatever starts or asks about a job
is done by the Trainshed that runs the package; the calls go through `modelarts.trainshed_call`.
"""
