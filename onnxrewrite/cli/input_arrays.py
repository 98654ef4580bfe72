"""Arrays and sizes for the inputs of a model: what ``--input`` and ``--dim`` say, read and compared with the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxrewrite.errors import UsageError
from onnxrewrite.system import files as regular

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.inputs.bindings import InputSpec
    from onnxrewrite.system.arrays import Array, Outputs


def sizes(options: Sequence[str]) -> dict[str, int]:
    """``--dim`` options by name."""
    found: dict[str, int] = {}
    for option in options:
        name, equals, value = option.rpartition("=")
        if not equals or not name or not value.isdecimal():
            raise UsageError(f"--dim {option}: write NAME=SIZE, as in --dim batch=2")
        if found.setdefault(name, int(value)) != int(value):
            raise UsageError(f"--dim {name}: given twice, as {found[name]} and as {value}")
    return found


def files(options: Sequence[str]) -> dict[str, Path]:
    """``--input`` options by name; UsageError if a file is not there."""
    found: dict[str, Path] = {}
    for option in options:
        name, equals, path = option.partition("=")
        if not equals or not name or not path:
            raise UsageError(f"--input {option}: write NAME=FILE.npy, as in --input pixels=cat.npy")
        if name in found:
            raise UsageError(f"--input {name}: given twice")
        found[name] = Path(path)
        if not regular.is_regular(path):
            raise UsageError(f"--input {name}: no such file: {path}")
    return found


def feeds(model: ir.Model, inputs: dict[str, Path], dims: dict[str, int]) -> Outputs:
    """The arrays of ``--input``; UsageError if they, or ``dims``, do not fit the model."""
    if not inputs and not dims:
        return {}
    from onnxrewrite.inputs.bindings import symbols

    specs = _specs(model)
    known = symbols(list(specs.values()))
    for name in dims:
        if name not in known:
            raise UsageError(
                f"--dim {name}: no such dimension; the inputs have {', '.join(known) or 'fixed sizes only'}"
            )
    bound = dict(dims)
    arrays: Outputs = {}
    for name, path in inputs.items():
        if name not in specs:
            raise UsageError(f"--input {name}: the model has no such input; it has {', '.join(specs) or 'none'}")
        arrays[name] = array = _typed(_array(name, path), specs[name])
        _fits(array, specs[name], bound)
    return arrays


def _specs(model: ir.Model) -> dict[str, InputSpec]:
    """The inputs by name."""
    import onnx

    from onnxrewrite.inputs.bindings import input_specs
    from onnxrewrite.io import preserved

    known = preserved.origin(model)
    assert known is not None
    bare = onnx.ModelProto()
    bare.graph.input.extend(known.inputs)
    return {s.name: s for s in input_specs(bare)}


def _array(name: str, path: Path) -> Array:
    import numpy as np

    try:
        with regular.open_regular(path) as file:
            loaded = np.load(file, allow_pickle=False)
    except Exception:  # numpy raises half a dozen types, and advises to load what may be malicious
        raise UsageError(f"--input {name}: {path} is not a .npy file of numbers, or is damaged") from None
    if not isinstance(loaded, np.ndarray):
        raise UsageError(f"--input {name}: {path} holds several arrays; give one as .npy")
    return loaded


def _typed(array: Array, spec: InputSpec) -> Array:
    """The array in the input's dtype: numpy stores narrow floats as raw bytes, and strings with a length."""
    import numpy as np
    import onnx

    if not spec.tensor:
        raise UsageError(f"--input {spec.name}: is no tensor, a .npy file cannot hold it")
    wanted = onnx.helper.tensor_dtype_to_np_dtype(spec.elem_type)
    if spec.elem_type == onnx.TensorProto.STRING and array.dtype.kind in "US":
        return array.astype(str).astype(object)
    if array.dtype.kind == "V" and array.dtype.itemsize == np.dtype(wanted).itemsize and array.dtype.names is None:
        return array.view(wanted)
    if array.dtype != wanted:
        raise UsageError(
            f"--input {spec.name}: holds {array.dtype}, the model wants {_dtype_name(spec.elem_type, wanted)}"
        )
    return array


def _dtype_name(elem_type: int, wanted: object) -> str:
    import onnx

    return "strings" if elem_type == onnx.TensorProto.STRING else str(wanted)


def _fits(array: Array, spec: InputSpec, bound: dict[str, int]) -> None:
    """UsageError unless the array has a shape of the input; notes the sizes that it gives."""
    if spec.dims is None:
        return
    wanted = f"[{', '.join(map(str, spec.dims))}]"
    if len(spec.dims) != array.ndim:
        raise UsageError(f"--input {spec.name}: has shape {list(array.shape)}, the model wants {wanted}")
    for dim, size in zip(spec.dims, array.shape, strict=True):
        if isinstance(dim, int) and dim != size:
            raise UsageError(f"--input {spec.name}: has shape {list(array.shape)}, the model wants {wanted}")
        if isinstance(dim, str) and bound.setdefault(dim, size) != size:
            raise UsageError(f"--input {spec.name}: has {dim}={size}, elsewhere {dim}={bound[dim]} was given")
