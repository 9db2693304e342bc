"""A linear model trained with DistributedDataParallel, as the PyTorch tutorial on fault-tolerant training has it.

Usage: ddp.py TOTAL_EPOCHS SAVE_EVERY [--batch_size N]
"""

import argparse
import os

import torch
import torch.nn.functional as F
from torch.distributed import all_reduce, destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class MyTrainDataset(Dataset):
    def __init__(self, size):
        rng = torch.Generator().manual_seed(0)
        x = torch.rand(size, 20, generator=rng)
        self.data = list(zip(x, x.sum(dim=1, keepdim=True)))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


class Trainer:
    def __init__(self, model, train_data, optimizer, save_every, snapshot_path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.epochs_run = 0
        self.snapshot_path = snapshot_path
        self.losses = []
        if os.path.exists(snapshot_path):
            print("Loading snapshot")
            snapshot = torch.load(snapshot_path)
            model.load_state_dict(snapshot["MODEL_STATE"])
            self.epochs_run = snapshot["EPOCHS_RUN"]
        self.model = DDP(model)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        steps = len(self.train_data)
        self.losses.append(sum(self._run_batch(x, y) for x, y in self.train_data) / steps)
        print(f"[CPU{self.global_rank}] Epoch {epoch} | Steps: {steps} | Loss {self.losses[-1]:.4f}")

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            self._run_epoch(epoch)
            if self.local_rank == 0 and epoch % self.save_every == 0:
                snapshot = {"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch}
                torch.save(snapshot, self.snapshot_path)
                print(f"Epoch {epoch} | Training snapshot saved at {self.snapshot_path}")


def main(total_epochs, save_every, batch_size, snapshot_path="snapshot.pt"):
    init_process_group(backend="gloo")
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    dataset = MyTrainDataset(512)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=DistributedSampler(dataset))
    trainer = Trainer(model, loader, optimizer, save_every, snapshot_path)
    trainer.train(total_epochs)
    ranks = torch.tensor([trainer.global_rank])
    all_reduce(ranks)
    assert trainer.losses[-1] < trainer.losses[0], trainer.losses
    print(f"rank {trainer.global_rank} of {torch.distributed.get_world_size()}: sum of ranks {ranks.item()}")
    destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="simple distributed training job")
    parser.add_argument("total_epochs", type=int, help="Total epochs to train the model")
    parser.add_argument("save_every", type=int, help="How often to save a snapshot")
    parser.add_argument("--batch_size", default=32, type=int, help="Input batch size on each device")
    args = parser.parse_args()
    main(args.total_epochs, args.save_every, args.batch_size)
