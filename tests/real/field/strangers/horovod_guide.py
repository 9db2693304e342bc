"""A classifier trained with Horovod's optimizer, as its PyTorch guide has it."""

import argparse

import horovod.torch as hvd
import torch
import torch.nn.functional as F
import torch.utils.data.distributed

parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--use-adasum", action="store_true", default=False)


def metric_average(val, name):
    return hvd.allreduce(torch.tensor(val), name=name).item()


def main():
    args = parser.parse_args()
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    inputs = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
    dataset = torch.utils.data.TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
    sampler = torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=hvd.size(), rank=hvd.rank()
    )
    loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    model = torch.nn.Linear(8, 2)
    lr_scaler = hvd.size() if not args.use_adasum else 1
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * lr_scaler, momentum=0.5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        op=hvd.Adasum if args.use_adasum else hvd.Average,
    )
    losses = []
    for epoch in range(1, args.epochs + 1):
        model.train()
        sampler.set_epoch(epoch)
        for batch_idx, (data, target) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
            if batch_idx % 4 == 0:
                done, total = batch_idx * len(data), len(sampler)
                print(f"Train Epoch: {epoch} [{done}/{total}]\tLoss: {loss.item():.6f}")
        losses.append(metric_average(loss.item(), "avg_loss"))
    assert losses[-1] < losses[0], losses
    ranks = hvd.allreduce(torch.tensor(hvd.rank()), name="ranks", op=hvd.Sum).item()
    print(f"rank {hvd.rank()} of {hvd.size()}: sum of ranks {ranks}")


if __name__ == "__main__":
    main()
