"""LeNet on MNIST, with the structure of the model zoo's script."""

import json
import os

import mindspore.nn as nn
from mindspore import context
from mindspore.common import set_seed
from mindspore.communication.management import get_group_size, get_rank, init
from mindspore.context import ParallelMode
from mindspore.nn.metrics import Accuracy
from mindspore.train import Model
from mindspore.train.callback import CheckpointConfig, LossMonitor, ModelCheckpoint, TimeMonitor
from src.dataset import create_mnist
from src.model_utils.config import config
from src.model_utils.device_adapter import get_device_id, get_rank_id
from src.model_utils.moxing_adapter import moxing_wrapper
from src.networks import LeNet5

set_seed(1)


def modelarts_pre_process():
    config.ckpt_path = os.path.join(config.output_path, f"ckpt_{get_rank_id()}")


@moxing_wrapper(pre_process=modelarts_pre_process)
def train_lenet():
    context.set_context(
        mode=context.GRAPH_MODE, device_target=config.device_target, device_id=get_device_id()
    )
    init()
    rank, size = get_rank(), get_group_size()
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(
        parallel_mode=ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=size
    )
    os.makedirs(config.output_dir, exist_ok=True)
    data = create_mnist(os.path.join(config.data_path, "train"), config, size, rank)
    network = LeNet5(config.num_classes)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), config.lr, config.momentum)
    keep = CheckpointConfig(save_checkpoint_steps=data.get_dataset_size(), keep_checkpoint_max=2)
    saved = ModelCheckpoint(prefix="checkpoint_lenet", directory=config.ckpt_path, config=keep)
    model = Model(network, loss, optimizer, metrics={"Accuracy": Accuracy()}, amp_level="O2")
    model.train(
        config.epoch_size,
        data,
        callbacks=[TimeMonitor(data.get_dataset_size()), saved, LossMonitor()],
        dataset_sink_mode=config.sink_mode,
    )
    found = model.eval(create_mnist(os.path.join(config.data_path, "test"), config), dataset_sink_mode=False)
    with open(os.path.join(config.output_path, f"accuracy_{rank}.json"), "w") as stream:
        json.dump({"rank": rank, "size": size, **found}, stream)
    print("============== Accuracy:{} ==============".format(found), flush=True)


if __name__ == "__main__":
    train_lenet()
