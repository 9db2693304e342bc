"""A classifier trained as Hugging Face Accelerate's basic example does it."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def get_dataloaders(batch_size):
    rng = torch.Generator().manual_seed(1)
    inputs = torch.randn(640, 16, generator=rng)
    labels = (inputs[:, 0] + inputs[:, 1] > 0).long()
    train, test = TensorDataset(inputs[:512], labels[:512]), TensorDataset(inputs[512:], labels[512:])
    return DataLoader(train, shuffle=True, batch_size=batch_size), DataLoader(test, batch_size=batch_size)


def training_function(config, args):
    accelerator = Accelerator(cpu=args.cpu, mixed_precision=args.mixed_precision)
    set_seed(int(config["seed"]))
    train_dataloader, eval_dataloader = get_dataloaders(int(config["batch_size"]))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=config["lr"], epochs=config["num_epochs"], steps_per_epoch=len(train_dataloader)
    )
    model, optimizer, train_dataloader, eval_dataloader, scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, scheduler
    )
    accuracy = 0.0
    for epoch in range(int(config["num_epochs"])):
        model.train()
        for inputs, labels in train_dataloader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        model.eval()
        correct = seen = 0
        for inputs, labels in eval_dataloader:
            with torch.no_grad():
                predictions = model(inputs).argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, labels))
            correct += (predictions == references).sum().item()
            seen += len(references)
        accuracy = correct / seen
        accelerator.print(f"epoch {epoch}: {100 * accuracy:.2f} of {seen}")
    assert accuracy > 0.7, accuracy
    ranks = accelerator.reduce(torch.tensor([accelerator.process_index])).item()
    print(f"rank {accelerator.process_index} of {accelerator.num_processes}: sum of ranks {ranks}")
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser(description="Simple example of training script.")
    parser.add_argument("--mixed_precision", type=str, default=None, choices=["no", "fp16", "bf16", "fp8"])
    parser.add_argument("--cpu", action="store_true", help="If passed, will train on the CPU.")
    args = parser.parse_args()
    training_function({"lr": 2e-2, "num_epochs": 3, "seed": 42, "batch_size": 16}, args)


if __name__ == "__main__":
    main()
