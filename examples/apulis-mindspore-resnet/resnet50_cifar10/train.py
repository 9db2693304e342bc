"""Data parallel training on CIFAR-10 with MindSpore on Ascend, small enough for sixteen ranks on two cores.

Every rank takes its share of the data and proves at the end that all weights agree.
"""

import argparse
import os

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import context, nn, ops
from mindspore.communication import get_group_size, get_rank, init
from mindspore.context import ParallelMode

STEPS = 10


def main(args):
    context.set_context(
        mode=context.GRAPH_MODE, device_target="Ascend", device_id=int(os.getenv("DEVICE_ID"))
    )
    ms.set_seed(1)
    rank, ranks = 0, 1
    if args.run_distribute:
        init()
        rank, ranks = get_rank(), get_group_size()
        context.set_auto_parallel_context(
            device_num=args.device_num, parallel_mode=ParallelMode.DATA_PARALLEL, gradients_mean=True
        )
    total = Collective(ops.AllReduce())(ms.Tensor([rank], ms.float32)).asnumpy()[0] if ranks > 1 else 0
    assert total == ranks * (ranks - 1) / 2, f"the ranks' sum is {total}"

    data = ds.Cifar10Dataset(
        args.dataset_path,
        usage="train",
        num_parallel_workers=8,
        shuffle=True,
        num_shards=ranks,
        shard_id=rank,
    )
    network = nn.SequentialCell(
        nn.Conv2d(3, 8, 4, stride=4, pad_mode="valid"), nn.ReLU(), nn.Flatten(), nn.Dense(512, 10)
    )
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimiser = nn.Momentum(network.trainable_params(), 0.05, 0.9)
    step = nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimiser).set_train()
    losses = []
    for images, labels in data.batch(16).take(STEPS).create_tuple_iterator(num_epochs=1, output_numpy=True):
        pixels = ms.Tensor(images.transpose(0, 3, 1, 2).astype(np.float32) / 255)
        losses.append(float(step(pixels, ms.Tensor(labels.astype(np.int32))).asnumpy()))
    mine = np.concatenate([p.asnumpy().ravel() for p in network.trainable_params()])
    every = Collective(ops.AllGather())(ms.Tensor(mine[None])).asnumpy() if ranks > 1 else mine[None]
    assert (every == every[0]).all(), "the ranks' weights differ"
    print(f"rank {rank} of {ranks}: loss {losses[0]:.3f} -> {losses[-1]:.3f}, weights agree", flush=True)


class Collective(nn.Cell):
    """One collective operation, in a cell because graph mode needs one."""

    def __init__(self, operation):
        super().__init__()
        self.operation = operation

    def construct(self, tensor):
        return self.operation(tensor)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--do_train", default="True")
    parser.add_argument("--run_distribute", type=lambda text: text == "True", default=False)
    parser.add_argument("--device_num", type=int, default=1)
    parser.add_argument("--dataset_path", required=True)
    main(parser.parse_args())
