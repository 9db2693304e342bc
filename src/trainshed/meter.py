"""`trainshed.meter`: the meter of `trainshed_meter`, for scripts that have Trainshed installed.

The code is in one standard-library file that is also put on the path of every job,
so that scripts in other environments can use the same meter.
"""

from trainshed.payload.common.trainshed_meter import Meter, dataset_checksum

__all__ = ["Meter", "dataset_checksum"]
