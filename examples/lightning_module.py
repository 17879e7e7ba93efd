"""A node classifier trained by Lightning, made a detector, and its stream watched: python examples/lightning_module.py.

The module is any LightningModule whose forward takes (x, edge_index) and returns logits: `Detector` borrows it.
"""

from __future__ import annotations

import lightning
import torch
from torch.nn.functional import cross_entropy, relu
from torch_geometric.nn import GCNConv

import gnnsafe
from gnnsafe.monitoring import History, observe


class Classifier(lightning.LightningModule):
    """Two graph convolutions; one batch is the whole graph."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.first, self.second = GCNConv(in_channels, 16), GCNConv(16, num_classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """The logits."""
        return self.second(relu(self.first(x, edge_index)), edge_index)

    def training_step(self, batch: list) -> torch.Tensor:
        """The loss of the training nodes."""
        (data,) = batch
        logits = self(data.x, data.edge_index)
        return cross_entropy(logits[data.train_mask], data.y[data.train_mask])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """As usual."""
        return torch.optim.Adam(self.parameters(), lr=0.01, weight_decay=5e-4)


def main() -> None:
    """Train, calibrate, and watch two days."""
    lightning.seed_everything(0, verbose=False)
    graphs = gnnsafe.load_benchmark("synthetic", shift="feature", nodes=1500, edges=6000, features=32, classes=4)
    model = Classifier(graphs.id.num_features, graphs.num_classes)
    loader = torch.utils.data.DataLoader([graphs.id], batch_size=1, collate_fn=list)
    trainer = lightning.Trainer(max_epochs=40, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1)  # fmt: skip
    trainer.fit(model, loader)

    detector = gnnsafe.Detector(model, embedding="first").fit(graphs.id).calibrate(graphs.id)
    print(detector.check_calibration(graphs.id))
    with History.open("history.db") as history:
        for day, graph in {"an ordinary day": graphs.id, "a day of other features": graphs.ood["feature"]}.items():
            judged = history.append(observe(detector, graph, name=day))
            print(f"{day}: {'ALARM' if judged.raised(0.01) else 'calm'}, {judged.counted} nodes counted")


if __name__ == "__main__":
    main()
