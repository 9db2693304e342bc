"""Fits a line on all ranks together with MindSpore's data parallelism, and checks their collectives."""

import os
import signal
import sys
import time

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init

ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
init()
rank, size = get_rank(), get_group_size()


class Added(nn.Cell):
    def __init__(self):
        super().__init__()
        self.add = ops.AllReduce(ops.ReduceOp.SUM)

    def construct(self, x):
        return self.add(x)


total = float(Added()(ms.Tensor([float(rank)], ms.float32)).asnumpy()[0])
assert total == size * (size - 1) / 2, total
if "--die" in sys.argv and rank == size - 1:
    print(f"DIES {time.time()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

ms.set_auto_parallel_context(
    parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=size
)
ms.set_seed(1)
net = nn.Dense(1, 1)
train = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
train.set_train()
random = np.random.default_rng(rank)
for _ in range(60):
    x = random.random((32, 1), dtype=np.float32)
    train(ms.Tensor(x), ms.Tensor(3 * x + rank))
weights = np.concatenate([p.asnumpy().ravel() for p in net.trainable_params()])
mean = Added()(ms.Tensor(weights)).asnumpy() / size
assert np.allclose(mean, weights, atol=1e-5), "the ranks' weights differ"
at_half = weights[0] * 0.5 + weights[1]
assert abs(at_half - (1.5 + (size - 1) / 2)) < 0.4, at_half
print(f"TRAINED rank {rank} of {size} on {os.uname().nodename} sum {total:g}", flush=True)
