"""A training script in the style of MindSpore's model zoo, which leaves ais-bench's result files."""

import json
import os
import time

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import context, nn
from mindspore.communication import get_group_size, get_rank, init
from mindspore.context import ParallelMode
from src.config import config
from src.moxing_adapter import moxing_wrapper


@moxing_wrapper
def train_net():
    device = int(os.getenv("DEVICE_ID", "0"))
    context.set_context(mode=context.GRAPH_MODE, device_target=config.device_target, device_id=device)
    ms.set_seed(1)
    rank, ranks = 0, 1
    if config.run_distribute:
        init()
        rank, ranks = get_rank(), get_group_size()
        context.set_auto_parallel_context(
            device_num=ranks, parallel_mode=ParallelMode.DATA_PARALLEL, gradients_mean=True
        )
    network = nn.SequentialCell(
        nn.Conv2d(3, 16, 4, stride=4, pad_mode="valid"), nn.ReLU(), nn.Flatten(), nn.Dense(1024, 10)
    )
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimiser = nn.Momentum(network.trainable_params(), 0.05, 0.9)
    step = nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimiser).set_train()
    done, began = 0, 0.0
    for _ in range(config.epoch_size):
        data = images("train", num_shards=ranks, shard_id=rank).batch(config.batch_size, drop_remainder=True)
        for pictures, labels in data.take(config.steps).create_tuple_iterator(
            num_epochs=1, output_numpy=True
        ):
            value = step(prepared(pictures), ms.Tensor(labels.astype(np.int32))).asnumpy()
            done += 1
            began = began or time.perf_counter()  # the first step compiles and is not timed
    rate = (done - 1) * config.batch_size / (time.perf_counter() - began)
    print(f"rank {rank} of {ranks}: loss {float(value):.3f}, {rate:.1f} images/s", flush=True)
    write(f"throughput_{rank}.json", rate)
    if rank == 0:
        write("ranksize.json", ranks)
        if config.run_eval:
            write("accuracy.json", evaluate(network))


def images(part, **how):
    folder = os.path.join(config.data_path, "train" if part == "train" else "eval")
    return ds.Cifar10Dataset(folder, usage=part, num_parallel_workers=8, **how)


def prepared(pictures):
    return ms.Tensor(pictures.transpose(0, 3, 1, 2).astype(np.float32) / 255)


def evaluate(network):
    network.set_train(False)
    data = images("test", shuffle=False, num_samples=360).batch(360)
    ((pictures, labels),) = data.create_tuple_iterator(num_epochs=1, output_numpy=True)
    return float((network(prepared(pictures)).asnumpy().argmax(axis=1) == labels).mean())


def write(name, number):
    """One bare number, as ais-bench reads it."""
    os.makedirs(config.output_path, exist_ok=True)
    with open(os.path.join(config.output_path, name), "w") as stream:
        json.dump(number, stream)


if __name__ == "__main__":
    train_net()
