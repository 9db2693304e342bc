"""Who am I, as Open MPI tells its processes."""

import os
import socket

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
local = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
each = int(os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
assert rank % each == local, (rank, local, each)
print(f"rank {rank} of {size}: sum of ranks {sum(range(size))}, on {socket.gethostname()}", flush=True)
