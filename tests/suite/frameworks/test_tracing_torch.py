"""Functions of PyTorch as patterns: what both exporters make of a function in a model is found, and becomes an operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'onnxrewrite[torch]'")

import onnxrewrite as rw  # noqa: E402
from onnxrewrite.errors import ModelError, UsageError  # noqa: E402

F, Weight, rand = torch.nn.functional, torch.nn.Parameter, torch.randn


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def swiglu(x: Any, gate: Any, up: Any) -> Any:
    return F.silu(x @ gate) * (x @ up)


def rms_norm(x: Any, scale: Any, epsilon: float = 1e-6) -> Any:
    return scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon))


def rotary(q: Any, cos: Any, sin: Any) -> Any:
    half = q.shape[-1] // 2
    return q * cos + torch.cat((-q[..., half:], q[..., :half]), -1) * sin


def lora(x: Any, weight: Any, down: Any, up: Any) -> Any:
    return x @ weight + (x @ down @ up) * 2.0


def masked_softmax(scores: Any, mask: Any) -> Any:
    return torch.softmax(scores.masked_fill(mask == 0, -math.inf), -1)


def alibi(q: Any, k: Any, v: Any, slopes: Any) -> Any:
    place = torch.arange(k.shape[-2])
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.softmax(scores + slopes * (place[None, :] - place[:, None]), -1) @ v


def group_norm(x: Any, weight: Any, bias: Any) -> Any:
    return F.group_norm(x, 4, weight, bias)


def squeeze_excite(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    gate = torch.sigmoid(F.linear(F.relu(F.linear(x.mean((2, 3)), w1, b1)), w2, b2))
    return x * gate[:, :, None, None]


def mean_pool(hidden: Any, mask: Any) -> Any:
    kept = mask[..., None].to(hidden.dtype)
    return (hidden * kept).sum(1) / kept.sum(1).clamp(min=1e-9)


FUSIONS: dict[Callable[..., Any], Callable[[int], dict[str, Any]]] = {
    gelu: lambda n: {"x": rand(2, 5, n)},
    swiglu: lambda n: {"x": rand(2, 5, n), "gate": Weight(rand(n, 2 * n)), "up": Weight(rand(n, 2 * n))},
    rms_norm: lambda n: {"x": rand(2, 5, n), "scale": Weight(rand(n))},
    rotary: lambda n: {"q": rand(2, 4, 5, n), "cos": rand(5, n), "sin": rand(5, n)},
    lora: lambda n: {
        "x": rand(2, 5, n), "weight": Weight(rand(n, 24)), "down": Weight(rand(n, 4)), "up": Weight(rand(4, 24))
    },
    masked_softmax: lambda n: {"scores": rand(2, 4, n, n), "mask": torch.ones(n, n).tril()[None, None]},
    alibi: lambda n: {"q": rand(2, 4, 5, n), "k": rand(2, 4, 5, n), "v": rand(2, 4, 5, n), "slopes": Weight(rand(4, 1, 1))},
    group_norm: lambda n: {"x": rand(2, n, 6, 6), "weight": Weight(rand(n)), "bias": Weight(rand(n))},
    squeeze_excite: lambda n: {
        "x": rand(2, n, 6, 6), "w1": Weight(rand(4, n)), "b1": Weight(rand(4)), "w2": Weight(rand(n, 4)), "b2": Weight(rand(n))
    },
    mean_pool: lambda n: {"hidden": rand(2, 5, n), "mask": torch.ones(2, 5, dtype=torch.int64)},
}  # fmt: skip
"""Functions to an example of a size."""


class Around(torch.nn.Module):  # type: ignore[misc]
    """A network with a function somewhere inside."""

    def __init__(self, function: Callable[..., Any], example: Mapping[str, Any]):
        super().__init__()
        self.function, self.names = function, list(example)
        self.free = [name for name, value in example.items() if not isinstance(value, Weight)]
        for name in example.keys() - {*self.free}:
            self.register_parameter(f"p_{name}", example[name])

    def forward(self, *tensors: Any) -> Any:
        given = {n: torch.sin(t) if t.is_floating_point() else t for n, t in zip(self.free, tensors, strict=True)}
        made = self.function(**{n: given[n] if n in given else getattr(self, f"p_{n}") for n in self.names})
        return torch.cos(made)


def exported(function: Callable[..., Any], example: Mapping[str, Any], exporter: Any, path: Path) -> Path:
    network = Around(function, example)
    tensors = tuple(example[name] for name in network.free)
    return rw.deploy.export(network, tensors, path, exporter=exporter, optimize=False, samples=1).path


@pytest.mark.parametrize("function", FUSIONS, ids=lambda f: f.__name__)
def test_a_function_is_found_in_what_both_exporters_make_of_it(function: Callable[..., Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    example = FUSIONS[function]
    name = function.__name__.replace("_", "-")
    rules = rw.trace(function, example(16), example(24)).becomes("traced", function.__name__, name=f"traced-{name}")
    for exporter in ("dynamo", "torchscript"):
        model = exported(function, example(32), exporter, tmp_path / f"{exporter}.onnx")
        result = rw.apply(model, rules=rules, lower="fused")
        assert sum(result.trace.counts()[rule.name] for rule in rules) == 1
        assert any(node.domain == "traced" for node in result.model.graph)
        assert result.checks.model is not None
        assert result.checks.model.ok


def test_arguments_are_captured_by_their_names() -> None:
    (form,) = rw.trace(swiglu, FUSIONS[swiglu](16), dynamic=False).forms
    assert repr(form) == "(Swish(MatMul(x, gate)) * MatMul(x, up))"
    assert list(form.captures) == ["x", "gate", "up"]


def test_a_number_that_differs_is_captured() -> None:
    x = {"x": rand(2, 16)}

    def scaled(x: Any, by: float) -> Any:
        return torch.tanh(x) * by

    assert repr(rw.trace(scaled, x | {"by": 3.0}, dynamic=False).pattern) == "(Tanh(x) * 3)"
    assert repr(rw.trace(scaled, x | {"by": 3.0}, x | {"by": 5.0}, dynamic=False).pattern) == "(Tanh(x) * scale)"


def test_several_results_are_several_values() -> None:
    def both(x: Any) -> Any:
        return torch.tanh(x), torch.exp(x)

    pattern = rw.trace(both, {"x": rand(2, 16)}).pattern
    assert isinstance(pattern, tuple)
    assert [*map(repr, pattern)] == ["Tanh(x)", "Exp(x)"]


def test_what_cannot_be_traced() -> None:
    with pytest.raises(UsageError, match="give an example"):
        rw.trace(gelu)
    with pytest.raises(UsageError, match="the example does not fit gelu"):
        rw.trace(gelu, {"y": rand(2)})
    with pytest.raises(UsageError, match="trace a function, not int"):
        rw.trace(3, {"x": rand(2)})
    with pytest.raises(ModelError, match=r"cannot be exported: dynamo: .*_linalg_svd"):
        rw.trace(lambda x: torch.linalg.svdvals(x), {"x": rand(4, 4)})
    with pytest.raises(ModelError, match=r"swiglu does not run on the example: .* cannot be multiplied"):
        rw.trace(swiglu, {"x": rand(2, 16), "gate": Weight(rand(3, 4)), "up": Weight(rand(3, 4))})
