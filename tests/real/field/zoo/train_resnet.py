"""A residual network on CIFAR-10, with the structure of the model zoo's script."""

import json
import os

import mindspore.common.initializer as weight_init
import mindspore.nn as nn
from mindspore import Model, Tensor, context
from mindspore.common import set_seed
from mindspore.communication.management import get_group_size, get_rank, init
from mindspore.context import ParallelMode
from mindspore.nn.optim import Momentum
from mindspore.parallel import set_algo_parameters
from mindspore.train.callback import Callback, CheckpointConfig, LossMonitor, ModelCheckpoint
from mindspore.train.loss_scale_manager import FixedLossScaleManager
from src.dataset import create_cifar10
from src.model_utils.config import config
from src.model_utils.device_adapter import get_device_id
from src.model_utils.moxing_adapter import moxing_wrapper
from src.networks import ResNet

set_seed(1)


class EvalCallBack(Callback):
    """Every rank evaluates after each epoch."""

    def __init__(self, model, data):
        self.model, self.data, self.found = model, data, {}

    def on_train_epoch_end(self, run_context):
        self.found = self.model.eval(self.data, dataset_sink_mode=False)
        print("epoch", run_context.original_args().cur_epoch_num, self.found, flush=True)


def set_parameter():
    context.set_context(mode=context.GRAPH_MODE, device_target=config.device_target, save_graphs=False)
    context.set_context(device_id=get_device_id(), enable_auto_mixed_precision=True, max_call_depth=10000)
    init("hccl")
    context.set_auto_parallel_context(
        device_num=get_group_size(), parallel_mode=ParallelMode.DATA_PARALLEL, gradients_mean=True
    )
    set_algo_parameters(elementwise_op_strategy_follow=True)
    context.set_auto_parallel_context(all_reduce_fusion_config=[4, 8])


def init_weight(net):
    for _, cell in net.cells_and_names():
        if isinstance(cell, nn.Conv2d):
            cell.weight.set_data(
                weight_init.initializer(weight_init.XavierUniform(), cell.weight.shape, cell.weight.dtype)
            )


def init_group_params(net):
    decayed_params, no_decayed_params = [], []
    for param in net.trainable_params():
        if "beta" not in param.name and "gamma" not in param.name and "bias" not in param.name:
            decayed_params.append(param)
        else:
            no_decayed_params.append(param)
    return [
        {"params": decayed_params, "weight_decay": config.weight_decay},
        {"params": no_decayed_params},
        {"order_params": net.trainable_params()},
    ]


@moxing_wrapper()
def train_net():
    set_parameter()
    rank, size = get_rank(), get_group_size()
    save_ckpt_path = os.path.join(config.output_path, "ckpt_" + str(rank))
    os.makedirs(config.output_dir, exist_ok=True)
    data = create_cifar10(os.path.join(config.data_path, "cifar10"), config, True, size, rank)
    test = create_cifar10(os.path.join(config.data_path, "cifar10"), config, False)
    net = ResNet(config.num_classes)
    init_weight(net)
    steps = data.get_dataset_size() * config.epoch_size
    lr = Tensor([config.lr * (1 - step / (steps + 1)) for step in range(steps)])
    optimizer = Momentum(init_group_params(net), lr, config.momentum, loss_scale=config.loss_scale)
    loss_scale = FixedLossScaleManager(config.loss_scale, drop_overflow_update=False)
    model = Model(
        net,
        loss_fn=nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
        optimizer=optimizer,
        loss_scale_manager=loss_scale,
        metrics={"acc"},
        amp_level="O3",
        boost_level="O0",
        keep_batchnorm_fp32=False,
    )
    keep = CheckpointConfig(save_checkpoint_steps=steps, keep_checkpoint_max=1)
    evaluated = EvalCallBack(model, test)
    callbacks = [LossMonitor(), evaluated, ModelCheckpoint("resnet", directory=save_ckpt_path, config=keep)]
    model.train(
        config.epoch_size,
        data,
        callbacks=callbacks,
        sink_size=data.get_dataset_size(),
        dataset_sink_mode=config.sink_mode,
    )
    with open(os.path.join(config.output_path, f"accuracy_{rank}.json"), "w") as stream:
        json.dump({"rank": rank, "size": size, **evaluated.found}, stream)


if __name__ == "__main__":
    train_net()
