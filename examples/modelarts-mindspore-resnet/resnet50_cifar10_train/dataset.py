"""CIFAR-10 for training and evaluation, on one device or a share of it on each of several."""

import os

import mindspore as ms
import mindspore.dataset as ds
from mindspore.dataset import transforms, vision

device_id = int(os.getenv("DEVICE_ID"))
device_num = int(os.getenv("RANK_SIZE"))
# On one server this is the device's number; on several only the rank is unique.
rank_id = int(os.getenv("RANK_ID", str(device_id)))


def create_dataset(dataset_path, do_train, batch_size=32, image_size=32, num_samples=None):
    if device_num == 1 or not do_train:
        dataset = ds.Cifar10Dataset(
            dataset_path, num_parallel_workers=8, shuffle=do_train, num_samples=num_samples
        )
    else:
        dataset = ds.Cifar10Dataset(
            dataset_path, num_parallel_workers=8, shuffle=True, num_shards=device_num, shard_id=rank_id
        )
    steps = [
        vision.Rescale(1 / 255, 0),
        vision.Normalize([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]),
        vision.HWC2CHW(),
    ]
    if image_size != 32:
        steps.insert(0, vision.Resize((image_size, image_size)))
    dataset = dataset.map(
        operations=transforms.TypeCast(ms.int32), input_columns="label", num_parallel_workers=8
    )
    dataset = dataset.map(operations=steps, input_columns="image", num_parallel_workers=8)
    return dataset.batch(batch_size, drop_remainder=do_train)
