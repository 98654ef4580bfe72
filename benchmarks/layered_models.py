"""Models whose exports repeat themselves, with random weights: a Mamba mixer, unrolled and as a scan, and experts.

They are what ``transformers`` computes on its slow path, at sizes of their own, written down here because exports
of these are what is asked about.  Needs torch.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

Exporter: TypeAlias = Literal["dynamo", "torchscript"]

OPSET = 17


class Mamba(nn.Module):  # type: ignore[misc]
    """A selective state space model (Gu and Dao, 2023), its recurrence as a loop over steps.

    Args:
        hidden: The size of a token; there are twice as many channels.
        states: The number of states of a channel.
        kernel: The width of the convolution.
        rank: The size from which step sizes are made.
    """

    def __init__(self, hidden: int, states: int = 16, kernel: int = 4, rank: int = 4):
        super().__init__()
        self.channels, self.sizes, self.states = 2 * hidden, [rank, states, states], states
        self.in_proj = nn.Linear(hidden, 2 * self.channels, bias=False)
        self.conv = nn.Conv1d(self.channels, self.channels, kernel, groups=self.channels, padding=kernel - 1)
        self.x_proj = nn.Linear(self.channels, sum(self.sizes), bias=False)
        self.dt_proj = nn.Linear(rank, self.channels)
        rows = torch.arange(1, states + 1, dtype=torch.float32).expand(self.channels, -1)
        self.decay = nn.Parameter(torch.log(rows).contiguous())
        self.skip = nn.Parameter(torch.ones(self.channels))
        self.out_proj = nn.Linear(self.channels, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, hidden] to the same."""
        steps = x.shape[1]
        u, gate = self.in_proj(x).transpose(1, 2).chunk(2, dim=1)
        u = F.silu(self.conv(u)[..., :steps])
        sizes, b, c = torch.split(self.x_proj(u.transpose(1, 2)), self.sizes, dim=-1)
        dt = F.softplus(self.dt_proj(sizes)).transpose(1, 2)
        decays = torch.exp(-torch.exp(self.decay)[None, :, None, :] * dt[:, :, :, None])
        additions = dt[:, :, :, None] * b[:, None, :, :] * u[:, :, :, None]
        y = self.recurrence(decays, additions, c)
        y = (y + u * self.skip[None, :, None]) * F.silu(gate)
        return self.out_proj(y.transpose(1, 2))

    def recurrence(self, decays: Tensor, additions: Tensor, c: Tensor) -> Tensor:
        """States of each channel, read at each step: [batch, channels, steps]."""
        state = torch.zeros(decays.shape[0], self.channels, self.states)
        rows = []
        for step in range(decays.shape[2]):
            state = decays[:, :, step, :] * state + additions[:, :, step, :]
            rows.append(torch.matmul(state, c[:, step, :].unsqueeze(-1))[:, :, 0])
        return torch.stack(rows, dim=-1)


class ScannedMamba(Mamba):
    """The same with PyTorch's scan."""

    def recurrence(self, decays: Tensor, additions: Tensor, c: Tensor) -> Tensor:
        """See ``Mamba``."""

        def step(state: Tensor, given: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            decay, addition, reading = given
            new = decay * state + addition
            return new.clone(), torch.matmul(new, reading.unsqueeze(-1)).squeeze(-1)

        first = torch.zeros(decays.shape[0], self.channels, self.states)
        sequences = (decays.permute(2, 0, 1, 3), additions.permute(2, 0, 1, 3), c.transpose(0, 1))
        _, rows = scan(step, first, sequences, dim=0)
        return rows.permute(1, 2, 0)


class Expert(nn.Module):  # type: ignore[misc]
    """A gated feed-forward layer (SwiGLU)."""

    def __init__(self, hidden: int, inner: int):
        super().__init__()
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, hidden] to the same."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):  # type: ignore[misc]
    """A mixture of experts as Mixtral's, every expert computed for every token, which is what can be exported.

    Args:
        hidden: The size of a token.
        inner: The size inside of an expert.
        count: The number of experts.
        chosen: The number of those that a token is given to.
    """

    def __init__(self, hidden: int, inner: int, count: int = 8, chosen: int = 2):
        super().__init__()
        self.router, self.chosen = nn.Linear(hidden, count, bias=False), chosen
        self.experts = nn.ModuleList(Expert(hidden, inner) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, hidden] to the same."""
        batch, steps, hidden = x.shape
        tokens = x.view(-1, hidden)
        weights, numbers = torch.topk(F.softmax(self.router(tokens), dim=1, dtype=torch.float), self.chosen, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        total = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            total = total + (weights * (numbers == number)).sum(dim=-1, keepdim=True) * expert(tokens)
        return total.reshape(batch, steps, hidden)


class GatheredExperts(nn.Module):  # type: ignore[misc]
    """A mixture of experts as DeepSeek's, for each token of copies of the weights of its experts.

    Args:
        hidden: The size of a token.
        inner: The size inside of an expert.
        count: The number of experts.
        chosen: The number of those that a token is given to.
    """

    def __init__(self, hidden: int, inner: int, count: int = 8, chosen: int = 2):
        super().__init__()
        self.router, self.chosen = nn.Linear(hidden, count, bias=False), chosen
        self.favour = nn.Parameter(torch.randn(count) / 8)
        self.gate_up = nn.Parameter(torch.randn(count, 2 * inner, hidden) / hidden**0.5)
        self.down = nn.Parameter(torch.randn(count, hidden, inner) / inner**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, hidden] to the same."""
        batch, steps, hidden = x.shape
        tokens = x.view(-1, hidden)
        scores = self.router(tokens).sigmoid()
        numbers = torch.topk(scores + self.favour, self.chosen, dim=-1)[1]
        weights = scores.gather(1, numbers)
        rows, flat = tokens.repeat_interleave(self.chosen, dim=0), numbers.reshape(-1)
        gate, up = torch.bmm(self.gate_up[flat], rows.unsqueeze(-1)).squeeze(-1).chunk(2, dim=-1)
        results = torch.bmm(self.down[flat], (F.silu(gate) * up).unsqueeze(-1)).squeeze(-1)
        apart = (results * weights.reshape(-1, 1)).view(-1, self.chosen, hidden)
        return apart.sum(dim=1).view(batch, steps, hidden)


def export(model: nn.Module, steps: int, hidden: int, path: Path, exporter: Exporter, *, dynamic: bool = True) -> Path:
    """Write a model that takes [batch, steps, hidden]; with named sizes where ``dynamic``."""
    logging.disable(logging.WARNING)
    sample = torch.randn(2, steps, hidden)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "torchscript":
            axes = {"x": {0: "batch"}} if dynamic else None
            names = {"input_names": ["x"], "output_names": ["y"]}
            torch.onnx.export(model, (sample,), path, dynamo=False, dynamic_axes=axes, opset_version=OPSET, **names)
        else:
            sizes = ({0: torch.export.Dim("batch")},) if dynamic else None
            torch.onnx.export(model, (sample,), dynamo=True, dynamic_shapes=sizes, verbose=False).save(path)
    return path


def mamba(path: Path, exporter: Exporter, hidden: int, steps: int) -> Path:
    """A Mamba mixer, unrolled."""
    torch.manual_seed(0)
    return export(Mamba(hidden).eval(), steps, hidden, path, exporter)


def scanned_mamba(path: Path, hidden: int, steps: int) -> Path:
    """A Mamba mixer as a Scan, which only torch.export writes, and for fixed sizes."""
    torch.manual_seed(0)
    return export(ScannedMamba(hidden).eval(), steps, hidden, path, "dynamo", dynamic=False)


def experts(path: Path, exporter: Exporter, hidden: int, inner: int, steps: int) -> Path:
    """A mixture of 8 experts, 2 of them chosen."""
    torch.manual_seed(0)
    return export(Experts(hidden, inner).eval(), steps, hidden, path, exporter)


def gathered_experts(path: Path, exporter: Exporter, hidden: int, inner: int, steps: int) -> Path:
    """A mixture of 8 experts, 2 of them chosen, whose weights are gathered."""
    torch.manual_seed(0)
    return export(GatheredExperts(hidden, inner).eval(), steps, hidden, path, exporter)
