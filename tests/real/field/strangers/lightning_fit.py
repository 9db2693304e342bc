"""An autoencoder trained with Lightning's Trainer, as its introduction in 15 minutes does it."""

import argparse

import lightning as L
import torch
from torch import nn, utils


class LitAutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(28, 16), nn.ReLU(), nn.Linear(16, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 28))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1)
    args = parser.parse_args()
    data = torch.rand(256, 28, generator=torch.Generator().manual_seed(0))
    loader = utils.data.DataLoader(utils.data.TensorDataset(data), batch_size=16, shuffle=True)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp" if args.nodes * args.devices > 1 else "auto",
        num_nodes=args.nodes,
        devices=args.devices,
        max_epochs=2,
        enable_progress_bar=False,
        log_every_n_steps=1,
        default_root_dir="lightning",
    )
    trainer.fit(model=LitAutoEncoder(), train_dataloaders=loader)
    ranks = trainer.strategy.reduce(torch.tensor(float(trainer.global_rank)), reduce_op="sum")
    print(f"rank {trainer.global_rank} of {trainer.world_size}: sum of ranks {int(ranks)}")


if __name__ == "__main__":
    main()
