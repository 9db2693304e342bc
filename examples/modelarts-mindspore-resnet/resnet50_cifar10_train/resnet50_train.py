"""Trains ResNet-50 on CIFAR-10 on ModelArts, with 1*Ascend or 8*Ascend, and checks its accuracy.

Data come from and results go to the object store, through MoXing.
"""

import argparse
import json
import math
import os
import time

import mindspore as ms

# adapt to cloud: used for downloading data
import moxing as mox
from dataset import create_dataset, device_id, device_num, rank_id
from mindspore import Model, context, nn
from mindspore.communication import init
from mindspore.context import ParallelMode
from mindspore.train.callback import Callback, CheckpointConfig, LossMonitor, ModelCheckpoint
from resnet import resnet50

LOCAL_OUTPUT = "/cache/output"


def resnet50_train(args):
    # adapt to cloud: define local data path
    local_data_path = "/cache/data"
    context.set_context(mode=context.GRAPH_MODE, device_target="Ascend", device_id=device_id)
    ms.set_seed(1)
    if device_num > 1:
        init()
        context.set_auto_parallel_context(
            device_num=device_num,
            parallel_mode=ParallelMode.DATA_PARALLEL,
            gradients_mean=True,
            # The gradients of 161 layers go over the network in a few large pieces.
            comm_fusion={"allreduce": {"mode": "size", "config": 32}},
        )
        # adapt to cloud: define distributed local data path
        local_data_path = os.path.join(local_data_path, str(device_id))

    # adapt to cloud: download data from obs to local location
    print("Download data.")
    mox.file.copy_parallel(src_url=args.data_url, dst_url=local_data_path)

    train_dataset = create_dataset(
        os.path.join(local_data_path, "train"), True, args.batch_size, args.image_size
    )
    if args.steps:
        train_dataset = train_dataset.take(args.steps)
    steps = train_dataset.get_dataset_size() * args.epoch_size
    network = resnet50(width=args.width)
    model = Model(
        network,
        loss_fn=nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
        optimizer=nn.Momentum(network.trainable_params(), rates(args.learning_rate, steps), 0.9),
        metrics={"accuracy"},
        amp_level=args.amp_level,
    )
    clock = Clock()
    callbacks = [clock, LossMonitor(20)]
    if rank_id == 0:
        every = train_dataset.get_dataset_size()
        keep = CheckpointConfig(save_checkpoint_steps=every, keep_checkpoint_max=1)
        callbacks.append(ModelCheckpoint("resnet50", LOCAL_OUTPUT, keep))
    model.train(args.epoch_size, train_dataset, callbacks=callbacks, dataset_sink_mode=False)

    test_dataset = create_dataset(
        os.path.join(local_data_path, "eval"), False, 60, args.image_size, args.eval_samples
    )
    accuracy = model.eval(test_dataset, dataset_sink_mode=False)["accuracy"]
    images = clock.rate(args.batch_size * device_num)
    print(f"accuracy={accuracy:.4f} images_per_second={images:.1f}", flush=True)
    if rank_id == 0:
        result = {"accuracy": accuracy, "images_per_second": images, "steps": steps, "devices": device_num}
        with open(os.path.join(LOCAL_OUTPUT, "result.json"), "w") as stream:
            json.dump(result | {"width": args.width}, stream)
        # adapt to cloud: upload training outputs from local location to obs
        mox.file.copy_parallel(src_url=LOCAL_OUTPUT, dst_url=args.train_url)
    if accuracy < args.target:
        raise SystemExit(f"accuracy {accuracy:.4f} is below the target {args.target}")


def rates(highest, steps):
    """Up for a tenth of the way, then down along half a cosine."""
    warm = max(1, steps // 10)
    down = [0.5 * (1 + math.cos(math.pi * step / max(1, steps - warm))) for step in range(steps - warm)]
    return [highest * factor for factor in [*((step + 1) / warm for step in range(warm)), *down]]


class Clock(Callback):
    """Seconds between the end of the first step, which compiles, and of the last."""

    def __init__(self):
        self.ends = []

    def step_end(self, run_context):
        self.ends.append(time.perf_counter())

    def rate(self, images):
        return images * (len(self.ends) - 1) / (self.ends[-1] - self.ends[0]) if len(self.ends) > 1 else 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="ResNet-50 train.")
    # adapt to cloud: get obs data path
    parser.add_argument("--data_url", required=True, default=None, help="Location of data.")
    # adapt to cloud: get obs output path
    parser.add_argument("--train_url", required=True, default=None, help="Location of training outputs.")
    parser.add_argument("--epoch_size", type=int, default=90, help="Train epoch size.")
    parser.add_argument("--batch_size", type=int, default=32, help="Images of one device in one step.")
    parser.add_argument("--image_size", type=int, default=32, help="Pixels of an image's side.")
    parser.add_argument("--width", type=int, default=64, help="Channels of the first stage: 64 is ResNet-50.")
    parser.add_argument("--steps", type=int, default=0, help="Steps of an epoch; 0: all there are.")
    parser.add_argument("--learning_rate", type=float, default=0.05)
    parser.add_argument("--amp_level", default="O2", help="O2: half precision; O0: single.")
    parser.add_argument("--eval_samples", type=int, default=None, help="Evaluate on the first N images.")
    parser.add_argument("--target", type=float, default=0.0, help="Fail below this accuracy.")
    args_opt, unknown = parser.parse_known_args()

    resnet50_train(args_opt)
