"""A small network on handwritten digits, written for Ascend with MindSpore, measured by the meter."""

import argparse
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import context, nn
from trainshed_meter import Meter, dataset_checksum

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--out", type=Path)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--target", type=float, default=0.5)
options = parser.parse_args()

meter = Meter()
meter.seed(options.seed)
with meter.phase("prepare"):
    context.set_context(mode=context.GRAPH_MODE, device_target="Ascend")
    ms.set_seed(options.seed)
with meter.phase("dataload"):
    images, labels = (np.load(options.data / "train" / f"{name}.npy") for name in ("images", "labels"))
    tests, answers = (np.load(options.data / "val" / f"{name}.npy") for name in ("images", "labels"))
    meter.dataset("digits", dataset_checksum(str(options.data)), len(images), len(tests))

network = nn.SequentialCell(nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 10))
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
step = nn.TrainOneStepCell(
    nn.WithLossCell(network, loss), nn.Adam(network.trainable_params(), learning_rate=0.003)
).set_train()
meter.start(global_batch_size=32)
order = np.random.RandomState(options.seed)
for _ in range(options.epochs):
    with meter.epoch():
        shuffled = order.permutation(len(images))
        for at in range(0, len(images) - 31, 32):
            batch = shuffled[at : at + 32]
            value = step(ms.Tensor(images[batch]), ms.Tensor(labels[batch]))
            value.asnumpy()
            meter.step(samples=32)
    with meter.evaluation():
        accuracy = float((network(ms.Tensor(tests)).asnumpy().argmax(axis=1) == answers).mean())
    meter.quality("accuracy", accuracy)
print(f"accuracy={accuracy:.4f}", flush=True)
meter.stop()
