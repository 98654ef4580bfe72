"""What every build.py shares: seed, lively weights, export, and the checks on what was exported.

    python -m golden_models.export [NAME ...]      rebuild the named models (all without a name)
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from torch import Tensor, nn

HERE = Path(__file__).parent
Inputs = dict[str, Tensor]
Sample = Callable[..., Inputs]  # dimension sizes by keyword -> random inputs of those sizes


def lively(module: nn.Module, seed: int = 0) -> nn.Module:
    """`module` in eval mode, with norms and biases moved off 1 and 0.

    A fresh network has gain 1, bias 0, mean 0 and variance 1; a rewrite that loses one of them would go unnoticed.
    Convolutions get Kaiming weights (those without gradient excepted), or the signal dies on its way through a CNN.
    """
    torch.manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.Conv2d) and part.weight.requires_grad:
            nn.init.kaiming_normal_(part.weight)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.ndim != 1 or not tensor.is_floating_point() or name.endswith("inv_freq"):
            continue
        with torch.no_grad():
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
            elif name.endswith("weight"):
                tensor.uniform_(0.7, 1.3)
            else:
                tensor.normal_(0, 0.1)
    return module.eval()


def export(
    module: nn.Module,
    path: Path,
    sample: Sample,
    dims: Mapping[str, int],
    axes: Mapping[str, dict[int, str]],
    outputs: Sequence[str],
    *,
    opset: int,
    dynamo: bool,
    keep_batchnorm: bool = False,
) -> None:
    """Write `module` to `path` as one file.

    sample: makes the example inputs; their order is that of `module.forward`'s parameters
    dims:   sizes of the named dimensions while tracing; no two alike, none 0 or 1, or the exporter may freeze them
    axes:   for each input (and, for TorchScript, each output), its named axes
    keep_batchnorm: ask TorchScript not to fold BatchNormalization into Conv
    """
    torch.manual_seed(1)
    inputs = sample(**dims)
    options: dict[str, object] = {}
    if dynamo:
        # By position, so that *varargs (the past of a decoder) need no special case.
        shapes = tuple(axes.get(name, {}) for name in inputs)
        options["dynamic_shapes"] = group_varargs(module, shapes)
    else:
        options["dynamic_axes"] = dict(axes)
        if keep_batchnorm:
            options["training"] = torch.onnx.TrainingMode.PRESERVE
    program = torch.onnx.export(
        module,
        tuple(inputs.values()),
        None if dynamo else str(path),
        input_names=list(inputs),
        output_names=list(outputs),
        opset_version=opset,
        dynamo=dynamo,
        **options,
    )
    model = program.model_proto if dynamo else onnx.load(path)
    for node in all_nodes(model):
        drop_stack_trace(node)
    onnx.save(model, path)


def group_varargs(module: nn.Module, shapes: tuple) -> tuple:
    """`shapes` with those of forward's `*varargs` gathered in one tuple, as torch.export wants them."""
    code = module.forward.__code__
    if not code.co_flags & 0x04:  # inspect.CO_VARARGS
        return shapes
    named = code.co_argcount - 1  # without self
    return *shapes[:named], tuple(shapes[named:])


def all_nodes(model: onnx.ModelProto):
    yield from model.graph.node
    for function in model.functions:
        yield from function.node


def drop_stack_trace(node: onnx.NodeProto) -> None:
    """Remove the Python stack trace that the dynamo exporter leaves: it is long, and names the builder's folders."""
    kept = [p for p in node.metadata_props if p.key != "pkg.torch.onnx.stack_trace"]
    del node.metadata_props[:]
    node.metadata_props.extend(kept)


def worst(difference: np.ndarray) -> float:
    return float(np.abs(difference).max())


def root_mean_square(difference: np.ndarray) -> float:
    return float(np.sqrt(np.square(difference).mean()))


def check(
    module: nn.Module,
    path: Path,
    sample: Sample,
    *bindings: Mapping[str, int],
    error: Callable[[np.ndarray], float] = worst,
    tolerance: float = 1e-4,
) -> None:
    """Raise AssertionError unless the model is valid, agrees with torch at each binding, and uses all its inputs."""
    onnx.checker.check_model(str(path), full_check=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(inputs: Inputs) -> list[np.ndarray]:
        return session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})

    for dims in bindings:
        torch.manual_seed(2)
        inputs, other = sample(**dims), sample(**dims)
        with torch.no_grad():
            expected = [tensor.numpy() for tensor in flat(module(*inputs.values()))]
        actual = run(inputs)
        assert len(actual) == len(expected)
        for output, a, e in zip(session.get_outputs(), actual, expected, strict=True):
            assert a.shape == e.shape, f"{output.name}: shape {a.shape}, torch has {e.shape} at {dims}"
            assert np.isfinite(a).all(), f"{output.name} is not finite at {dims}"
            found = error(a - e)
            assert found <= tolerance, f"{output.name} differs from torch by {found:.2g} at {dims}"
        for output, a, b in zip(session.get_outputs(), actual, run(other), strict=True):
            assert not np.allclose(a, b), f"{output.name} does not depend on the inputs at {dims}"
        for name in inputs:
            changed = run({**inputs, name: other[name]})
            assert not all(map(np.array_equal, actual, changed)), f"no output depends on {name} at {dims}"


def flat(outputs) -> list[Tensor]:
    """The tensors of a nest of tuples, in order."""
    if isinstance(outputs, Tensor):
        return [outputs]
    return [tensor for part in outputs for tensor in flat(part)]


def padding_mask(batch: int, length: int) -> Tensor:
    """int64[batch, length] of 0 and 1 that masks some tokens, never the first (a row of zeros has no softmax)."""
    mask = (torch.rand(batch, length) > 0.3).long()
    mask[:, 0] = 1
    return mask


def main(names: Sequence[str]) -> None:
    for name in names or sorted(p.parent.name for p in HERE.glob("*/build.py")):
        folder = HERE / name
        importlib.import_module(f"golden_models.{name}.build").build(folder / "model.onnx")
        size = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".onnx", ".xz"))
        print(f"{name}: {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
