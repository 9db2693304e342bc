"""Data parallel training in functional style, as MindSpore's tutorial has it."""

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_device("CPU")
ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
init()
ms.set_seed(1)


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.dense = nn.Dense(64, 10)
        self.relu = nn.ReLU()

    def construct(self, x):
        return self.dense(self.relu(self.flatten(x)))


def create_dataset(batch_size):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 512).astype(np.int32)
    images = rng.random((512, 1, 8, 8)).astype(np.float32) * 0.1
    images.reshape(512, 64)[np.arange(512), labels] += 1
    dataset = ds.NumpySlicesDataset(
        (images, labels), ["image", "label"], num_shards=get_group_size(), shard_id=get_rank()
    )
    return dataset.batch(batch_size)


data_set = create_dataset(32)
net = Network()
loss_fn = nn.CrossEntropyLoss()
optimizer = nn.SGD(net.trainable_params(), 1e-1)


def forward_fn(data, label):
    logits = net(data)
    return loss_fn(logits, label), logits


grad_fn = ms.value_and_grad(forward_fn, None, net.trainable_params(), has_aux=True)
grad_reducer = nn.DistributedGradReducer(optimizer.parameters)
losses = []
for epoch in range(2):
    for i, (image, label) in enumerate(data_set):
        (loss_value, _), grads = grad_fn(image, label)
        grads = grad_reducer(grads)
        optimizer(grads)
        losses.append(float(loss_value.asnumpy()))
        if i % 4 == 0:
            print("epoch: %s, step: %s, loss is %s" % (epoch, i, loss_value), flush=True)
assert losses[-1] < losses[0], losses


class Total(nn.Cell):
    def __init__(self):
        super().__init__()
        self.all_reduce = ops.AllReduce(ops.ReduceOp.SUM)

    def construct(self, x):
        return self.all_reduce(x)


ranks = Total()(ms.Tensor([get_rank()], ms.float32)).asnumpy()[0]
print(f"rank {get_rank()} of {get_group_size()}: sum of ranks {int(ranks)}", flush=True)
