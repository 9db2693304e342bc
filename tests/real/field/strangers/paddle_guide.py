"""A network trained with DataParallel, as Paddle's guide of data parallel training has it."""

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn as nn
from paddle.io import DataLoader, Dataset, DistributedBatchSampler

epoch_num = 2
batch_size = 16


class RandomDataset(Dataset):
    def __init__(self, num_samples):
        rng = np.random.default_rng(0)
        self.labels = rng.integers(0, 10, (num_samples, 1))
        self.images = rng.random((num_samples, 1, 8, 8)).astype("float32") * 0.1
        self.images.reshape(num_samples, 64)[np.arange(num_samples), self.labels[:, 0]] += 1

    def __getitem__(self, idx):
        return self.images[idx], self.labels[idx]

    def __len__(self):
        return len(self.labels)


def train():
    dist.init_parallel_env()
    paddle.seed(1)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    net = paddle.DataParallel(net)
    optimizer = paddle.optimizer.Adam(parameters=net.parameters(), learning_rate=0.01)
    dataset = RandomDataset(256)
    sampler = DistributedBatchSampler(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=0)
    losses = []
    for eop in range(epoch_num):
        net.train()
        for batch_id, (img, label) in enumerate(loader()):
            avg_loss = nn.functional.cross_entropy(net(img), label)
            avg_loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(float(avg_loss))
            if batch_id % 2 == 0:
                print("[Epoch %d, batch %d] loss: %.5f" % (eop, batch_id, losses[-1]))
    assert losses[-1] < losses[0], losses
    ranks = paddle.to_tensor([float(dist.get_rank())])
    if dist.get_world_size() > 1:
        dist.all_reduce(ranks)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum of ranks {int(ranks)}")


if __name__ == "__main__":
    train()
