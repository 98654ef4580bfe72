"""Train the networks with labels, and export them.

    python -m golden_models.labelled.train [NAME ...] [--folder FOLDER]

It needs PyTorch, and some minutes on two cores.  Each is exported by TorchScript, opset 17, with a named batch; weights
lie inside.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from golden_models.labelled.tasks import ITEMS, LENGTH, SHAPES, SUBJECTS, TASKS, USERS, WORDS

HELD_OUT = 2_000


class Block(nn.Module):
    """A convolution, a normalization and ReLU, beside what it reads where the sizes allow that."""

    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(after)
        self.adds = before == after and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        """[batch, before, height, width] to [batch, after, ...]."""
        y = self.norm(self.conv(x))
        return F.relu(x + y if self.adds else y)


class Images(nn.Module):
    """Nine convolutions, and a linear layer behind their means."""

    def __init__(self, outputs: int):
        super().__init__()
        sizes = [(3, 24, 1), (24, 24, 1), (24, 48, 2), (48, 48, 1), (48, 48, 1), (48, 96, 2), (96, 96, 1), (96, 96, 1)]
        self.body = nn.Sequential(*(Block(*size) for size in sizes))
        self.head = nn.Conv2d(96, 16, 1)
        self.last = nn.Linear(16 * 64, outputs)

    def forward(self, image: Tensor) -> Tensor:
        """[batch, 3, 32, 32] to [batch, outputs]."""
        return self.last(F.relu(self.head(self.body(image))).flatten(1))


class Texts(nn.Module):
    """A transformer of three layers of 128, and the mean of what it makes of the words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 128), nn.Embedding(LENGTH, 128)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(128, 4, 512, 0.0, "gelu", batch_first=True, norm_first=False) for _ in range(3)
        )
        self.last = nn.Linear(128, SUBJECTS)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[batch, 48] to [batch, 6]."""
        x = self.words(input_ids) + self.places.weight
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=attention_mask == 0)
        counts = attention_mask.to(x.dtype).unsqueeze(-1)
        return self.last((x * counts).sum(1) / counts.sum(1))


class Tastes(nn.Module):
    """Two tables, and three linear layers on what they say and its product."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, 64), nn.Embedding(ITEMS, 64)
        self.body = nn.Sequential(nn.Linear(192, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 2))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """[batch] to [batch, 2]."""
        u, i = self.users(user), self.items(item)
        return self.body(torch.cat([u, i, u * i], dim=1))


@dataclass(frozen=True)
class Plan:
    """How a network is trained.

    Attributes:
        network: Makes it.
        epochs: So often all samples are seen.
        samples: Of training.
        batch: Samples at a time.
        rate: The largest step.
    """

    network: Callable[[], nn.Module]
    epochs: int
    samples: int = 12_000
    batch: int = 64
    rate: float = 2e-3


PLANS = {
    "shapes": Plan(lambda: Images(SHAPES), 6),
    "boxes": Plan(lambda: Images(3), 6),
    "texts": Plan(Texts, 4, rate=1e-3),
    "tastes": Plan(Tastes, 12, samples=200_000, batch=1000, rate=1e-2),
}


def trained(name: str) -> nn.Module:
    """A network after training, which is told."""
    torch.manual_seed(0)
    plan, task = PLANS[name], TASKS[name]
    model = plan.network()
    inputs, labels = task.drawn(plan.samples, 1)
    arrays, target = [torch.from_numpy(a) for a in inputs.values()], torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.rate, weight_decay=0.02)
    count = plan.samples // plan.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, plan.rate, total_steps=plan.epochs * count)
    for epoch in range(plan.epochs):
        model.train()
        for batch in torch.randperm(len(target)).split(plan.batch)[:count]:
            found = model(*(a[batch] for a in arrays))
            is_box = found.shape == target[batch].shape
            loss = (
                F.smooth_l1_loss(found, target[batch], beta=0.02) if is_box else F.cross_entropy(found, target[batch])
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"{name}: epoch {epoch}, loss {loss.item():.3f}, {scored(name, model):.3f} of those held out", flush=True)
    return model.eval()


def scored(name: str, model: nn.Module) -> float:
    """The score on samples held out."""
    inputs, labels = TASKS[name].drawn(HELD_OUT, 2)
    model.eval()
    with torch.no_grad():
        found = model(*(torch.from_numpy(a) for a in inputs.values())).numpy()
    return TASKS[name].score(found, labels)


def export(name: str, model: nn.Module, file: Path) -> None:
    """Write a network, its batch named."""
    inputs, _ = TASKS[name].drawn(2, 3)
    torch.onnx.export(
        model,
        tuple(torch.from_numpy(np.asarray(a)) for a in inputs.values()),
        file,
        dynamo=False,
        opset_version=17,
        input_names=list(inputs),
        output_names=["found"],
        dynamic_axes={each: {0: "batch"} for each in (*inputs, "found")},
    )


def main() -> None:
    """Train and export."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    options.add_argument("--folder", type=Path, default=Path(__file__).parent)
    given = options.parse_args()
    for name in given.names or list(TASKS):
        export(name, trained(name), given.folder / f"{name}.onnx")


if __name__ == "__main__":
    main()
