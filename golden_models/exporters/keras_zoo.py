"""Keras 3 networks, by way of a TensorFlow function and tf2onnx at opset 18.

GELU is the one by tanh, for tf2onnx has no Erfc; ConvNeXt is in the list to tell when that changes.
"""

import os
from collections.abc import Callable
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf2onnx  # noqa: E402
from keras import KerasTensor, Model  # noqa: E402
from keras import layers as L  # noqa: E402

from golden_models.exporters.structure import Structure  # noqa: E402

OPSET = 18
WIDTH, HEADS, TOKENS, VOCAB = 24, 4, 12, 31

ATTENTIONS = (L.MultiHeadAttention, L.GroupQueryAttention, L.Attention)
NORMALIZATIONS = {L.LayerNormalization: "layer", L.RMSNormalization: "rms"}
ACTIVATIONS = {"gelu": "gelu", "tanh_gelu": "gelu", "silu": "swish", "hard_silu": "hardswish", "mish": "mish"}


def tanh_gelu(x: KerasTensor) -> KerasTensor:
    return keras.activations.gelu(x, approximate=True)


def normalized(x: KerasTensor) -> KerasTensor:
    return L.LayerNormalization(epsilon=1e-6)(x)


def attention(query: KerasTensor, value: KerasTensor, **options: object) -> KerasTensor:
    return L.MultiHeadAttention(HEADS, WIDTH // HEADS)(query, value, **options)


def mlp(x: KerasTensor, activation: object = tanh_gelu) -> KerasTensor:
    return L.Dense(WIDTH)(L.Dense(2 * WIDTH, activation=activation)(x))


def embedded(tokens: KerasTensor, **options: object) -> KerasTensor:
    return L.Embedding(VOCAB, WIDTH, **options)(tokens)


def post_norm(x: KerasTensor, activation: object = tanh_gelu, **options: object) -> KerasTensor:
    x = normalized(x + attention(x, x, **options))
    return normalized(x + mlp(x, activation))


def pre_norm(x: KerasTensor, **options: object) -> KerasTensor:
    y = normalized(x)
    x = x + attention(y, y, **options)
    return x + mlp(normalized(x))


def bert(length: int | None = None, activation: object = tanh_gelu, **options: object) -> Model:
    tokens = L.Input((length,), dtype="int32")
    x = embedded(tokens, **options)
    for _ in range(2):
        x = post_norm(x, activation)
    return Model(tokens, x)


def gpt() -> Model:
    tokens = L.Input((None,), dtype="int32")
    x = embedded(tokens)
    for _ in range(2):
        x = pre_norm(x, use_causal_mask=True)
    return Model(tokens, L.Dense(VOCAB)(normalized(x)))


def seq2seq() -> Model:
    """An encoder, and a decoder that attends to itself and to it."""
    source, target = L.Input((TOKENS,), dtype="int32"), L.Input((8,), dtype="int32")
    memory = post_norm(embedded(source))
    x = embedded(target)
    x = normalized(x + attention(x, x, use_causal_mask=True))
    x = normalized(x + attention(x, memory))
    return Model([source, target], L.Dense(VOCAB)(normalized(x + mlp(x))))


def perceiver() -> Model:
    """Few constant queries that attend to all of the input."""
    x = L.Input((None, WIDTH))
    ones = keras.ops.ones_like(x[:, :1, :4])
    queries = L.Reshape((4, WIDTH))(L.Dense(4 * WIDTH)(ones))
    return Model(x, pre_norm(queries + attention(normalized(queries), normalized(x))))


def luong() -> Model:
    """Attention without heads, of what a recurrent layer returns."""
    x = L.Input((TOKENS, 16))
    y = L.GRU(16, return_sequences=True)(x)
    return Model(x, L.Dense(4)(L.GlobalAveragePooling1D()(L.Attention(use_scale=True)([y, y]))))


def vit() -> Model:
    image = L.Input((16, 16, 3))
    x = L.Reshape((16, WIDTH))(L.Conv2D(WIDTH, 4, 4)(image))
    for _ in range(2):
        x = pre_norm(x)
    return Model(image, L.Dense(10)(L.GlobalAveragePooling1D()(normalized(x))))


def mixer() -> Model:
    image = L.Input((16, 16, 3))
    x = L.Reshape((16, WIDTH))(L.Conv2D(WIDTH, 4, 4)(image))
    for _ in range(2):
        y = L.Permute((2, 1))(normalized(x))
        y = L.Dense(16)(L.Dense(32, activation=tanh_gelu)(y))
        x = x + L.Permute((2, 1))(y)
        x = x + mlp(normalized(x))
    return Model(image, L.Dense(10)(L.GlobalAveragePooling1D()(x)))


def mbconv(activation: str) -> Model:
    """Convolutions by channel, and squeeze-and-excitation."""
    image = L.Input((16, 16, 3))
    x = image
    for width in (8, 16):
        x = L.Conv2D(width, 3, 2, padding="same", use_bias=False)(x)
        x = L.Activation(activation)(L.BatchNormalization()(x))
        y = L.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
        y = L.Activation(activation)(L.BatchNormalization()(y))
        s = L.Conv2D(4, 1, activation="relu")(L.GlobalAveragePooling2D(keepdims=True)(y))
        x = x + y * L.Conv2D(width, 1, activation="sigmoid")(s)
    return Model(image, L.Dense(10, activation="softmax")(L.GlobalAveragePooling2D()(x)))


def convnext() -> Model:
    image = L.Input((16, 16, 3))
    x = normalized(L.Conv2D(WIDTH, 4, 4)(image))
    for _ in range(2):
        x = x + mlp(normalized(L.DepthwiseConv2D(3, padding="same")(x)))
    return Model(image, L.Dense(10)(normalized(L.GlobalAveragePooling2D()(x))))


def residual(groups: int, activation: str = "silu") -> Model:
    """Two convolutions, each normalized by groups; -1 group is one a channel."""
    image = L.Input((8, 8, 8))
    x = image
    for _ in range(2):
        x = x + L.Conv2D(8, 3, padding="same")(L.Activation(activation)(L.GroupNormalization(groups)(x)))
    return Model(image, x)


def unet() -> Model:
    """Down, attention, up, and a skip connection."""
    image = L.Input((8, 8, 8))
    x = L.Conv2D(WIDTH, 3, 2, padding="same")(L.Activation("silu")(L.GroupNormalization(4)(image)))
    y = L.Reshape((16, WIDTH))(L.GroupNormalization(4)(x))
    x = x + L.Reshape((4, 4, WIDTH))(attention(y, y))
    x = L.Concatenate()([L.UpSampling2D(2, interpolation="nearest")(x), image])
    return Model(image, L.Conv2D(8, 3, padding="same")(L.Activation("silu")(L.GroupNormalization(4)(x))))


def glu() -> Model:
    x = L.Input((None, WIDTH))
    y = L.RMSNormalization()(x)
    return Model(x, x + L.Dense(WIDTH)(L.Dense(48, activation="silu")(y) * L.Dense(48)(y)))


def grouped_queries() -> Model:
    x = L.Input((TOKENS, WIDTH))
    return Model(x, normalized(x + L.GroupQueryAttention(6, 4, 2)(x, x)))


def conformer() -> Model:
    """Half a feed-forward layer, attention, a gated convolution, half a feed-forward layer."""
    x = L.Input((TOKENS, WIDTH))
    y = x + 0.5 * mlp(normalized(x), "silu")
    z = normalized(y)
    y = y + attention(z, z)
    z = normalized(y)
    z = L.Conv1D(WIDTH, 1)(z) * L.Conv1D(WIDTH, 1, activation="sigmoid")(z)
    z = L.Activation("silu")(L.BatchNormalization()(L.DepthwiseConv1D(3, padding="same")(z)))
    y = y + L.Conv1D(WIDTH, 1)(z)
    return Model(x, normalized(y + 0.5 * mlp(normalized(y), "silu")))


def causal_convolutions() -> Model:
    x = L.Input((16, 8))
    y = x
    for rate in (1, 2, 4):
        y = y + L.Conv1D(8, 2, padding="causal", dilation_rate=rate, activation="mish")(y)
    return Model(x, y)


def recurrent() -> Model:
    x = L.Input((None, 8))
    y = L.Bidirectional(L.GRU(8, return_sequences=True))(x)
    return Model(x, L.Dense(4)(L.LSTM(8)(y)))


def application(name: str) -> Model:
    return getattr(keras.applications, name)(weights=None, input_shape=(64, 64, 3), classes=10)


NETWORKS: dict[str, Callable[[], Model]] = {
    "bert": bert,
    "bert_static": lambda: bert(TOKENS),
    "bert_relu": lambda: bert(activation="relu"),
    "bert_padded": lambda: bert(TOKENS, mask_zero=True),
    "gpt": gpt,
    "seq2seq": seq2seq,
    "perceiver": perceiver,
    "luong": luong,
    "vit": vit,
    "mixer": mixer,
    "mbconv_swish": lambda: mbconv("silu"),
    "mbconv_hardswish": lambda: mbconv("hard_silu"),
    "mbconv_mish": lambda: mbconv("mish"),
    "mbconv_leaky": lambda: mbconv("leaky_relu"),
    "convnext": convnext,
    "groupnorm": lambda: residual(4),
    "instancenorm": lambda: residual(-1, "mish"),
    "unet": unet,
    "glu": glu,
    "grouped_queries": grouped_queries,
    "conformer": conformer,
    "causal_convolutions": causal_convolutions,
    "recurrent": recurrent,
    "mobilenet_v2": lambda: application("MobileNetV2"),
    "mobilenet_v3": lambda: application("MobileNetV3Small"),
    "efficientnet": lambda: application("EfficientNetB0"),
    "densenet": lambda: application("DenseNet121"),
    "resnet50": lambda: application("ResNet50"),
    "convnext_tiny": lambda: application("ConvNeXtTiny"),
}


def export(name: str, path: Path) -> Structure:
    """Write a network to ``path``; what it has."""
    keras.utils.set_random_seed(0)
    model = NETWORKS[name]()
    liven(model)
    signature = [tf.TensorSpec(x.shape, x.dtype, name=f"x{i}") for i, x in enumerate(model.inputs)]

    @tf.function(input_signature=signature)
    def function(*inputs: tf.Tensor) -> tf.Tensor:
        return model(inputs if len(inputs) > 1 else inputs[0], training=False)

    tf2onnx.convert.from_function(function, input_signature=signature, opset=OPSET, output_path=str(path))
    onnx.checker.check_model(str(path))  # what tf2onnx has no operator for it writes under TensorFlow's name
    return structure(model)


def liven(model: Model) -> None:
    """Move gains, biases and statistics off 1 and 0, or a rewrite that loses one would go unnoticed."""
    random = np.random.default_rng(0)
    for weight in model.weights:
        if not weight.dtype.startswith("float"):
            continue
        drawn = random.standard_normal(weight.shape) * 0.1
        around_one = any(word in weight.path for word in ("variance", "gamma", "scale"))
        weight.assign(np.abs(drawn + 1) if around_one else drawn)


def structure(model: Model) -> Structure:
    """The layers of a model that can be one operator."""
    found = Structure()
    for layer in model._flatten_layers(include_self=False):
        found.attentions += isinstance(layer, ATTENTIONS)
        if isinstance(layer, L.GroupNormalization):
            alone = layer.groups == layer.gamma.shape[0]
            found.normalizations["instance" if alone else "group"] += 1
        elif type(layer) in NORMALIZATIONS:
            found.normalizations[NORMALIZATIONS[type(layer)]] += 1
        kind = ACTIVATIONS.get(getattr(getattr(layer, "activation", None), "__name__", ""))
        if kind is not None:
            found.activations[kind] += 1
    return found
