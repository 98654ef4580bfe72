"""A block of a diffusion UNet at 8x8, TorchScript exporter at opset 17.

Two residual blocks (GroupNorm, SiLU, Conv, time embedding) around a transformer with self-attention,
cross-attention to text tokens and a GEGLU feed-forward, as in Stable Diffusion. GroupNorm arrives as Reshape,
InstanceNormalization, Reshape, Mul, Add; the scale of attention is computed from a Shape.
"""

import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from golden_models.export import check, export, lively

CHANNELS, HEADS, GROUPS, TEXT, TIME, SIDE = 32, 4, 8, 24, 64, 8


class TimeEmbedding(nn.Module):
    """Sinusoids of the time step, then a two-layer perceptron."""

    def __init__(self):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(CHANNELS, TIME), nn.Linear(TIME, TIME)

    def forward(self, timestep):
        half = CHANNELS // 2
        exponent = -math.log(10000) * torch.arange(half, dtype=torch.float32) / half
        angle = timestep[:, None].float() * torch.exp(exponent)[None, :]
        return self.linear_2(F.silu(self.linear_1(torch.cat([angle.cos(), angle.sin()], dim=-1))))


class ResnetBlock(nn.Module):
    def __init__(self, c_in: int, c_out: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(GROUPS, c_in, eps=1e-6), nn.Conv2d(c_in, c_out, 3, padding=1)
        self.time_emb_proj = nn.Linear(TIME, c_out)
        self.norm2, self.conv2 = nn.GroupNorm(GROUPS, c_out, eps=1e-6), nn.Conv2d(c_out, c_out, 3, padding=1)
        self.shortcut = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time_emb_proj(F.silu(time))[:, :, None, None]
        y = self.conv2(F.silu(self.norm2(y)))
        return self.shortcut(x) + y


class Attention(nn.Module):
    def __init__(self, context: int = CHANNELS):
        super().__init__()
        self.to_q = nn.Linear(CHANNELS, CHANNELS, bias=False)
        self.to_k = nn.Linear(context, CHANNELS, bias=False)
        self.to_v = nn.Linear(context, CHANNELS, bias=False)
        self.to_out = nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x, context):
        batch = x.shape[0]
        qkv = self.to_q(x), self.to_k(context), self.to_v(context)
        y = F.scaled_dot_product_attention(*(p.view(batch, -1, HEADS, CHANNELS // HEADS).transpose(1, 2) for p in qkv))
        return self.to_out(y.transpose(1, 2).reshape(batch, -1, CHANNELS))


class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, CHANNELS, eps=1e-6)
        self.proj_in, self.proj_out = nn.Conv2d(CHANNELS, CHANNELS, 1), nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.norm1, self.attn1 = nn.LayerNorm(CHANNELS), Attention()
        self.norm2, self.attn2 = nn.LayerNorm(CHANNELS), Attention(TEXT)
        self.norm3 = nn.LayerNorm(CHANNELS)
        self.geglu, self.linear = nn.Linear(CHANNELS, 8 * CHANNELS), nn.Linear(4 * CHANNELS, CHANNELS)

    def forward(self, x, text):
        batch, channels, height, width = x.shape
        y = self.proj_in(self.norm(x))
        y = y.permute(0, 2, 3, 1).reshape(batch, height * width, channels)
        z = self.norm1(y)
        y = y + self.attn1(z, z)
        y = y + self.attn2(self.norm2(y), text)
        value, gate = self.geglu(self.norm3(y)).chunk(2, dim=-1)
        y = y + self.linear(value * F.gelu(gate))
        y = y.reshape(batch, height, width, channels).permute(0, 3, 1, 2)
        return x + self.proj_out(y)


class UnetBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = TimeEmbedding()
        self.conv_in = nn.Conv2d(4, CHANNELS // 2, 3, padding=1)
        self.resnet_1 = ResnetBlock(CHANNELS // 2, CHANNELS)
        self.transformer = TransformerBlock()
        self.resnet_2 = ResnetBlock(CHANNELS, CHANNELS)
        self.norm_out, self.conv_out = nn.GroupNorm(GROUPS, CHANNELS), nn.Conv2d(CHANNELS, 4, 3, padding=1)

    def forward(self, sample, timestep, encoder_hidden_states):
        time = self.time(timestep)
        x = self.resnet_1(self.conv_in(sample), time)
        x = self.transformer(x, encoder_hidden_states)
        x = self.resnet_2(x, time)
        return self.conv_out(F.silu(self.norm_out(x)))


def sample(batch: int, tokens: int):
    return {
        "sample": torch.randn(batch, 4, SIDE, SIDE),
        "timestep": torch.randint(1000, (batch,)),
        "encoder_hidden_states": torch.randn(batch, tokens, TEXT),
    }


def build(path: Path) -> None:
    torch.manual_seed(0)
    unet = lively(UnetBlock())
    axes = {
        "sample": {0: "batch"},
        "timestep": {0: "batch"},
        "encoder_hidden_states": {0: "batch", 1: "tokens"},
        "out_sample": {0: "batch"},
    }
    export(unet, path, sample, dict(batch=2, tokens=7), axes, ["out_sample"], opset=17, dynamo=False)
    check(unet, path, sample, dict(batch=1, tokens=5), dict(batch=2, tokens=11))


if __name__ == "__main__":
    build(Path(__file__).with_name("model.onnx"))
