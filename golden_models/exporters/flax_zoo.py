"""Flax (nnx) networks, by way of jax2onnx.

Activations and rotary embeddings are modules here, so that all that a network has can be counted among its modules.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from flax import nnx  # noqa: E402
from jax import Array  # noqa: E402
from jax2onnx import to_onnx  # noqa: E402

from golden_models.exporters.structure import Structure  # noqa: E402

WIDTH, HEADS, TOKENS, VOCAB = 24, 4, 12, 31
RNGS = nnx.Rngs(0)

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: nnx.gelu(x, approximate=False),
    "tanh_gelu": nnx.gelu,
    "silu": nnx.silu,
    "quick_gelu": lambda x: x * nnx.sigmoid(1.702 * x),
    "hard_swish": nnx.hard_swish,
    "mish": jax.nn.mish,
    "relu": nnx.relu,
}
KINDS = {
    "gelu": "gelu",
    "tanh_gelu": "gelu",
    "silu": "swish",
    "quick_gelu": "swish",
    "hard_swish": "hardswish",
    "mish": "mish",
}
NORMALIZATIONS = {nnx.LayerNorm: "layer", nnx.RMSNorm: "rms", nnx.GroupNorm: "group", nnx.InstanceNorm: "instance"}


def linear(into: int, out: int, bias: bool = True) -> nnx.Linear:
    return nnx.Linear(into, out, use_bias=bias, rngs=RNGS)


def conv(into: int, out: int, size: int = 3, stride: int = 1, groups: int = 1) -> nnx.Conv:
    return nnx.Conv(into, out, (size, size), stride, feature_group_count=groups, rngs=RNGS)


def layer_norm(width: int = WIDTH) -> nnx.LayerNorm:
    return nnx.LayerNorm(width, rngs=RNGS)


def rms_norm(width: int = WIDTH) -> nnx.RMSNorm:
    return nnx.RMSNorm(width, rngs=RNGS)


def attention() -> nnx.MultiHeadAttention:
    return nnx.MultiHeadAttention(HEADS, WIDTH, rngs=RNGS, decode=False)


class Activation(nnx.Module):
    """A function of each element."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, x: Array) -> Array:
        return FUNCTIONS[self.name](x)


class Rotary(nnx.Module):
    """Rotates pairs of elements by their position; half of a head apart."""

    def __call__(self, x: Array) -> Array:
        size = x.shape[-1]
        angles = np.arange(x.shape[1])[:, None] / 10000 ** (np.arange(0, size, 2) / size)
        angles = np.concatenate([angles, angles], -1).astype(np.float32)[None, :, None]
        first, second = jnp.split(x, 2, -1)
        return x * np.cos(angles) + jnp.concatenate([-second, first], -1) * np.sin(angles)


class Mlp(nnx.Module):
    def __init__(self, activation: str = "tanh_gelu"):
        self.into, self.out = linear(WIDTH, 2 * WIDTH), linear(2 * WIDTH, WIDTH)
        self.activation = Activation(activation)

    def __call__(self, x: Array) -> Array:
        return self.out(self.activation(self.into(x)))


class Gated(nnx.Module):
    """RMS normalization and a gated feed-forward layer, with what came in."""

    def __init__(self, activation: str = "silu"):
        self.norm, self.activation = rms_norm(), Activation(activation)
        self.gate, self.up, self.down = linear(WIDTH, 48), linear(WIDTH, 48), linear(48, WIDTH)

    def __call__(self, x: Array) -> Array:
        y = self.norm(x)
        return x + self.down(self.activation(self.gate(y)) * self.up(y))


class Block(nnx.Module):
    """A layer of a transformer, normalized before or after."""

    def __init__(self, norm: Callable[[], nnx.Module], activation: str, before: bool):
        self.first, self.second = norm(), norm()
        self.attention, self.mlp = attention(), Mlp(activation)
        self.before = before

    def __call__(self, x: Array, mask: Array | None = None) -> Array:
        if self.before:
            x = x + self.attention(self.first(x), mask=mask)
            return x + self.mlp(self.second(x))
        x = self.first(x + self.attention(x, mask=mask))
        return self.second(x + self.mlp(x))


class Encoder(nnx.Module):
    def __init__(
        self,
        norm: Callable[[], nnx.Module] = layer_norm,
        activation: str = "tanh_gelu",
        before: bool = True,
        causal: bool = False,
        padded: bool = False,
    ):
        self.embed, self.positions = nnx.Embed(VOCAB, WIDTH, rngs=RNGS), nnx.Embed(TOKENS, WIDTH, rngs=RNGS)
        self.blocks = nnx.List([Block(norm, activation, before) for _ in range(2)])
        self.causal, self.padded = causal, padded

    def __call__(self, tokens: Array) -> Array:
        x = self.embed(tokens) + self.positions(jnp.arange(tokens.shape[1]))
        mask = nnx.make_causal_mask(tokens) if self.causal else None
        if self.padded:
            mask = nnx.make_attention_mask(tokens > 0, tokens > 0)
        for block in self.blocks:
            x = block(x, mask)
        return x


class Seq2seq(nnx.Module):
    """An encoder, and a decoder that attends to itself and to it."""

    def __init__(self):
        self.source, self.target = Encoder(), Encoder(causal=True)
        self.norm, self.cross, self.out = layer_norm(), attention(), linear(WIDTH, VOCAB)

    def __call__(self, source: Array, target: Array) -> Array:
        memory, x = self.source(source), self.target(target)
        return self.out(x + self.cross(self.norm(x), memory, memory))


class Llama(nnx.Module):
    """Rotated queries and keys, fewer of these, and a gated layer."""

    def __init__(self, shared: int = 2):
        self.shared = shared
        self.norm, self.mlp = rms_norm(), Gated()
        self.query, self.out = linear(WIDTH, 32, False), linear(32, WIDTH, False)
        self.key, self.value = linear(WIDTH, 32 // shared, False), linear(WIDTH, 32 // shared, False)
        self.rotary = nnx.List([Rotary(), Rotary()])
        self.attention = Shared()

    def __call__(self, x: Array) -> Array:
        y = self.norm(x)
        query, key, value = (part(y).reshape(*y.shape[:2], -1, 8) for part in (self.query, self.key, self.value))
        attended = self.attention(self.rotary[0](query), self.rotary[1](key), value)
        return self.mlp(x + self.out(attended.reshape(*y.shape[:2], 32)))


class Shared(nnx.Module):
    """Causal attention of fewer keys and values than queries."""

    def __call__(self, query: Array, key: Array, value: Array) -> Array:
        return jax.nn.dot_product_attention(query, key, value, is_causal=True)


class Relative(nnx.Module):
    """Attention as T5 has it: no scale, and a bias for each distance."""

    def __init__(self):
        self.norm, self.bias = rms_norm(), nnx.Embed(TOKENS, HEADS, rngs=RNGS)
        self.query, self.key, self.value = (linear(WIDTH, WIDTH, False) for _ in range(3))
        self.attention = Biased()

    def __call__(self, x: Array) -> Array:
        y = self.norm(x)
        query, key, value = (part(y).reshape(*y.shape[:2], HEADS, -1) for part in (self.query, self.key, self.value))
        places = np.arange(TOKENS)
        bias = self.bias(jnp.asarray(np.abs(places[:, None] - places)))
        return x + self.attention(query, key, value, jnp.transpose(bias, (2, 0, 1))[None]).reshape(x.shape)


class Biased(nnx.Module):
    """Attention with something added to its scores, by sums of products."""

    def __call__(self, query: Array, key: Array, value: Array, bias: Array) -> Array:
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) + bias
        return jnp.einsum("bhqk,bkhd->bqhd", nnx.softmax(scores), value)


class Patches(nnx.Module):
    """An image in pieces, and layers over them."""

    def __init__(self, *layers: nnx.Module):
        self.pieces, self.layers = nnx.Conv(3, WIDTH, (4, 4), (4, 4), rngs=RNGS), nnx.List(layers)
        self.norm, self.out = layer_norm(), linear(WIDTH, 10)

    def __call__(self, image: Array) -> Array:
        x = self.pieces(image)
        x = x.reshape(x.shape[0], -1, WIDTH)
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x).mean(1))


class Mixer(nnx.Module):
    def __init__(self):
        self.first, self.second, self.channels = layer_norm(), layer_norm(), Mlp("gelu")
        self.into, self.out, self.activation = linear(16, 32), linear(32, 16), Activation("gelu")

    def __call__(self, x: Array) -> Array:
        y = jnp.swapaxes(self.first(x), 1, 2)
        x = x + jnp.swapaxes(self.out(self.activation(self.into(y))), 1, 2)
        return x + self.channels(self.second(x))


class Modulated(nnx.Module):
    """A layer of a diffusion transformer: normalizations without weights, scaled and shifted by a condition."""

    def __init__(self):
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, use_bias=False, use_scale=False, rngs=RNGS) for _ in range(2)])
        self.attention, self.mlp = attention(), Mlp()
        self.activation, self.condition = Activation("silu"), linear(WIDTH, 6 * WIDTH)

    def __call__(self, x: Array, time: Array) -> Array:
        parts = jnp.split(self.condition(self.activation(time))[:, None], 6, -1)
        x = x + parts[0] * self.attention(self.norms[0](x) * (1 + parts[1]) + parts[2])
        return x + parts[3] * self.mlp(self.norms[1](x) * (1 + parts[4]) + parts[5])


class Convolutions(nnx.Module):
    """Two convolutions with what came in, each normalized, and a mean."""

    def __init__(self, activation: str, norm: Callable[[int], nnx.Module]):
        self.first, self.second, self.out = conv(3, 16, stride=2), conv(16, 16, groups=16), linear(16, 10)
        self.norms = nnx.List([norm(16), norm(16)])
        self.activations = nnx.List([Activation(activation), Activation(activation)])

    def __call__(self, image: Array) -> Array:
        x = self.activations[0](self.norms[0](self.first(image)))
        x = x + self.activations[1](self.norms[1](self.second(x)))
        x = nnx.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        return nnx.softmax(self.out(x.mean((1, 2))))


class Convnext(nnx.Module):
    def __init__(self):
        self.deep, self.norm, self.mlp = conv(WIDTH, WIDTH, 7, groups=WIDTH), layer_norm(), Mlp("gelu")

    def __call__(self, x: Array) -> Array:
        return x + self.mlp(self.norm(self.deep(x)))


class Unet(nnx.Module):
    """Down, attention, up, and a skip connection."""

    def __init__(self):
        self.norms = nnx.List([nnx.GroupNorm(w, 4, rngs=RNGS) for w in (8, WIDTH, WIDTH + 8)])
        self.activations = nnx.List([Activation("silu"), Activation("silu")])
        self.down, self.attention, self.up = conv(8, WIDTH, stride=2), attention(), conv(WIDTH + 8, 8)

    def __call__(self, x: Array) -> Array:
        y = self.down(self.activations[0](self.norms[0](x)))
        z = self.norms[1](y).reshape(y.shape[0], 16, WIDTH)
        y = y + self.attention(z).reshape(y.shape)
        y = jnp.repeat(jnp.repeat(y, 2, 1), 2, 2)
        return self.up(self.activations[1](self.norms[2](jnp.concatenate([y, x], -1))))


class Recurrent(nnx.Module):
    """An LSTM, a step after the other: nnx.RNN holds states that jax2onnx cannot trace."""

    def __init__(self):
        self.cell, self.out = nnx.LSTMCell(8, 8, rngs=RNGS), linear(8, 4)

    def __call__(self, x: Array) -> Array:
        state = (jnp.zeros((x.shape[0], 8)),) * 2
        for step in range(x.shape[1]):
            state, y = self.cell(state, x[:, step])
        return self.out(y)


@dataclass(frozen=True)
class Network:
    """How a network is made, and the shapes of its inputs; tokens are integers below the vocabulary."""

    make: Callable[[], nnx.Module]
    shapes: tuple[tuple[str | int, ...], ...]
    tokens: bool = False


def on_tokens(make: Callable[[], nnx.Module], *shapes: tuple[str | int, ...]) -> Network:
    return Network(make, shapes or ((2, TOKENS),), tokens=True)


def batch_norm(width: int) -> nnx.BatchNorm:
    return nnx.BatchNorm(width, use_running_average=True, rngs=RNGS)


IMAGE, ROWS = ("B", 16, 16, 3), ("B", TOKENS, WIDTH)
NETWORKS = {
    "encoder": on_tokens(Encoder, ("B", TOKENS)),
    "encoder_post": on_tokens(lambda: Encoder(activation="relu", before=False), ("B", TOKENS)),
    "encoder_rms": on_tokens(lambda: Encoder(rms_norm, "silu"), ("B", TOKENS)),
    "encoder_gelu": on_tokens(lambda: Encoder(activation="gelu")),
    "encoder_padded": on_tokens(lambda: Encoder(padded=True)),
    "clip_text": on_tokens(lambda: Encoder(activation="quick_gelu", causal=True)),
    "gpt": on_tokens(lambda: Encoder(causal=True)),
    "seq2seq": on_tokens(Seq2seq, (2, TOKENS), (2, TOKENS)),
    "llama": Network(Llama, ((2, TOKENS, WIDTH),)),
    "llama_unshared": Network(lambda: Llama(1), ((2, TOKENS, WIDTH),)),
    "t5": Network(Relative, ((2, TOKENS, WIDTH),)),
    "glu": Network(Gated, (ROWS,)),
    "geglu": Network(lambda: Gated("tanh_gelu"), (ROWS,)),
    "vit": Network(lambda: Patches(*(Block(layer_norm, "tanh_gelu", True) for _ in range(2))), (IMAGE,)),
    "mixer": Network(lambda: Patches(Mixer(), Mixer()), (IMAGE,)),
    "dit": Network(Modulated, ((2, TOKENS, WIDTH), (2, WIDTH))),
    "convnext": Network(Convnext, (("B", 8, 8, WIDTH),)),
    "unet": Network(Unet, (("B", 8, 8, 8),)),
    "cnn_swish": Network(lambda: Convolutions("silu", batch_norm), (IMAGE,)),
    "cnn_mish": Network(lambda: Convolutions("mish", batch_norm), (IMAGE,)),
    "cnn_groupnorm": Network(lambda: Convolutions("hard_swish", lambda w: nnx.GroupNorm(w, 4, rngs=RNGS)), (IMAGE,)),
    "cnn_instancenorm": Network(lambda: Convolutions("relu", lambda w: nnx.InstanceNorm(w, rngs=RNGS)), (IMAGE,)),
    "recurrent": Network(Recurrent, ((2, 4, 8),)),
}


def export(name: str, path: Path) -> Structure:
    """Write a network to ``path``; what it has."""
    network = NETWORKS[name]
    model = network.make()
    liven(model)
    inputs = list(network.shapes)
    if network.tokens:
        sizes = [tuple(jax.export.symbolic_shape("B")[0] if d == "B" else d for d in shape) for shape in network.shapes]
        inputs = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in sizes]
    onnx.save(to_onnx(model, inputs), path)
    return structure(model)


def liven(model: nnx.Module) -> None:
    """Draw all weights anew, gains, biases and statistics off 1 and 0, or a rewrite that loses one would go unnoticed."""
    random = np.random.default_rng(0)

    def drawn(path: tuple, old: Array) -> Array:
        around_one = path[-1].key in ("scale", "var")
        found = random.standard_normal(old.shape) * 0.1
        return jnp.asarray(np.abs(found + 1) if around_one else found, old.dtype)

    state = nnx.to_pure_dict(nnx.state(model, (nnx.Param, nnx.BatchStat)))
    nnx.update(model, jax.tree_util.tree_map_with_path(drawn, state))


def structure(model: nnx.Module) -> Structure:
    """The modules of a network that can be one operator."""
    found = Structure()
    for _, module in nnx.iter_modules(model):
        found.attentions += isinstance(module, nnx.MultiHeadAttention | Shared | Biased)
        found.rotary += isinstance(module, Rotary)
        if type(module) in NORMALIZATIONS:
            found.normalizations[NORMALIZATIONS[type(module)]] += 1
        if isinstance(module, Activation) and module.name in KINDS:
            found.activations[KINDS[module.name]] += 1
    return found
