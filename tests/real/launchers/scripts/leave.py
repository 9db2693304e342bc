"""Joins the ranks of a framework, does one collective, and ends as it is told, each rank at another moment."""

import os
import sys
import time

import numpy as np


def mindspore():
    import mindspore as ms
    from mindspore import nn, ops
    from mindspore.communication import get_rank, init

    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    init()

    class Added(nn.Cell):
        def __init__(self):
            super().__init__()
            self.add = ops.AllReduce(ops.ReduceOp.SUM)

        def construct(self, x):
            return self.add(x)

    return get_rank(), float(Added()(ms.Tensor(np.ones(1, np.float32))).asnumpy()[0])


def pytorch():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    ones = torch.ones(1)
    dist.all_reduce(ones)
    return dist.get_rank(), float(ones)


def paddle():
    import paddle
    import paddle.distributed as dist

    paddle.set_device("cpu")
    dist.init_parallel_env()
    ones = paddle.ones([1])
    dist.all_reduce(ones)
    return dist.get_rank(), float(ones)


def horovod():
    import horovod.torch as hvd
    import torch

    hvd.init()
    return hvd.rank(), float(hvd.allreduce(torch.ones(1), op=hvd.Sum))


framework, order, end = (os.environ[name] for name in ("FRAMEWORK", "ORDER", "END"))
rank, size = {"mindspore": mindspore, "pytorch": pytorch, "paddle": paddle, "horovod": horovod}[framework]()
turn = rank if order == "first" else size - 1 - rank
time.sleep(turn * 0.5)
print(f"DONE rank {rank} of {size:g}", flush=True)
if rank == 1 and end == "raise":
    raise ValueError("the last line failed")
if rank == 1 and end == "exit":
    sys.exit(3)
