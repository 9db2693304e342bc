"""Pictures of both models, with the transforms modules of their releases."""

import mindspore.common.dtype as mstype
import mindspore.dataset as ds
import mindspore.dataset.transforms.c_transforms as C2
import mindspore.dataset.vision.c_transforms as C
from mindspore.dataset.vision import Inter


def create_mnist(path, config, shards=1, shard=0):
    data = ds.MnistDataset(path, num_shards=shards, shard_id=shard)
    label = C2.TypeCast(mstype.int32)
    size = (config.image_height, config.image_width)
    pictures = [C.Resize(size, interpolation=Inter.LINEAR), C.Rescale(1 / 255.0, 0.0), C.HWC2CHW()]
    data = data.map(operations=label, input_columns="label", num_parallel_workers=8)
    data = data.map(operations=pictures, input_columns="image", num_parallel_workers=8)
    return data.shuffle(buffer_size=1000).batch(config.batch_size, drop_remainder=True)


def create_cifar10(path, config, train, shards=1, shard=0):
    usage = "train" if train else "test"
    data = ds.Cifar10Dataset(
        path, usage=usage, num_parallel_workers=12, shuffle=train, num_shards=shards, shard_id=shard
    )
    pictures = [C.RandomCrop((32, 32), (4, 4, 4, 4)), C.RandomHorizontalFlip(prob=0.5)] if train else []
    pictures += [
        C.Rescale(1.0 / 255.0, 0.0),
        C.Normalize([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]),
        C.HWC2CHW(),
    ]
    data = data.map(operations=C2.TypeCast(mstype.int32), input_columns="label", num_parallel_workers=12)
    data = data.map(operations=pictures, input_columns="image", num_parallel_workers=12)
    return data.batch(config.batch_size, drop_remainder=True).take(config.steps)
