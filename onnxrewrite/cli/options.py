"""Options that several commands share, and reading them: ``--dim``, ``--input``, paths to write to.

All of it is checked before any long work starts.
"""

from __future__ import annotations

import enum
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.errors import UsageError
from onnxrewrite.system import files as regular

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.inputs.bindings import InputSpec
    from onnxrewrite.system.arrays import Array, Outputs


class Mode(enum.StrEnum):
    """Values of ``--mode``; a test compares them with those of the library."""

    DYNAMIC = "dynamic"
    STATIC = "static"
    WEIGHTS = "weights"


Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR|NPZ|MODULE:FUNCTION",
        help="What to calibrate and judge on: a .npz file, a folder of .npz or .npy files, or a function that yields "
        "samples; else made up.",
    ),
]
Samples = Annotated[
    int | None, typer.Option("--samples", min=1, metavar="N", help="So many of the data are used at most.")
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric", metavar="MODULE:FUNCTION", help="Your own measure, of outputs and samples; larger is better."
    ),
]
Dims = Annotated[
    list[str],
    typer.Option("--dim", metavar="NAME=SIZE", help="Size of a named dimension.  Repeatable."),
]
Inputs = Annotated[
    list[str],
    typer.Option(
        "--input",
        metavar="NAME=FILE.npy",
        help="Array for an input; the others are generated.  Repeatable.",
    ),
]
Rules = Annotated[
    list[str],
    typer.Option(
        "--rules",
        metavar="FILE|PACKAGE",
        help="Rules beside the library's; onnxscript:default for those of onnxscript.  Repeatable.",
    ),
]

Trust = Annotated[
    bool,
    typer.Option("--trust", help="Run the rule files and packages that the certificate names, if they are unchanged."),
]


def _load_libraries(paths: list[Path]) -> list[Path]:
    """Load the libraries of ``--custom-ops`` as soon as they are read: every command then has them."""
    if paths:
        from onnxrewrite.ir.custom import use_custom_ops

        use_custom_ops(paths)
    return paths


CustomOps = Annotated[
    list[Path],
    typer.Option(
        "--custom-ops",
        envvar="ONNXREWRITE_CUSTOM_OPS",
        metavar="LIBRARY",
        callback=_load_libraries,
        help="Library of custom operators for ONNX Runtime.  Repeatable.",
    ),
]
Only = Annotated[
    list[str], typer.Option("--only", metavar="RULE", help="Apply only this rule or rule set.  Repeatable.")
]
Without = Annotated[
    list[str], typer.Option("--without", metavar="RULE", help="Leave this rule or rule set out.  Repeatable.")
]
Provider = Annotated[
    str | None,
    typer.Option(
        "--provider", metavar="NAME", help="Run on this execution provider: cpu, cuda, tensorrt, openvino, ..."
    ),
]
Threads = Annotated[
    int, typer.Option("--threads", min=0, metavar="N", help="Within an operator; 0 leaves it to ONNX Runtime.")
]
Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="The report for machines; - for stdout, in place of the table."),
]
Report = Annotated[
    str | None,
    typer.Option("--report", metavar="FILE.html", help="The report as one HTML page, with the graph before and after."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result in one line, or errors; nothing else.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print all details.")]


class Lowering(enum.StrEnum):
    """Values of ``--lower``."""

    FASTEST = "fastest"
    FUSED = "fused"
    PORTABLE = "portable"


Lower = Annotated[
    Lowering,
    typer.Option(
        "--lower",
        envvar="ONNXREWRITE_LOWER",
        help="fastest: what is measured to pay; fused: the most fused form that is legal, without measuring; "
        "portable: standard operators only.",
    ),
]
Budget = Annotated[float, typer.Option("--budget", min=0, metavar="SECONDS", help="For measuring rewrites one by one.")]
NamedSums = Annotated[
    bool,
    typer.Option("--named-sums/--no-named-sums", help="Take a dimension called a + b for the sum, or for a name."),
]
CPU = "onnxruntime-cpu"
"""The target where none is asked for."""

Target = Annotated[str, typer.Option("--target", metavar="TARGET", help="What the result must run on; see doctor.")]
AnyTarget = Annotated[
    str | None,
    typer.Option("--target", metavar="TARGET", help="What the result must run on, see doctor; else as --provider."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the generated inputs.")]


def place(provider: str | None, target: str | None) -> tuple[str, str]:
    """The execution provider, by ONNX Runtime's name, and the target: either follows from the other, and is the CPU's
    where neither is given.

    Raises:
        UsageError: There is no such provider, or this ONNX Runtime lacks it.
    """
    from onnxrewrite.ir import target as targets

    known = targets.target(target) if target is not None else None
    own = known.provider if known is not None else None
    chosen = targets.provider(provider) if provider is not None else own or targets.provider("cpu")
    return chosen, known.name if known is not None else targets.target_on(chosen)


def one_voice(quiet: bool, verbose: bool) -> None:
    """UsageError if both were asked for."""
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other")


def output_path(model: str, output: str | None, kind: str) -> Path:
    """The path of ``-o``, else ``MODEL.KIND.onnx`` beside the model; UsageError if MODEL is not a file name."""
    if output is not None:
        return Path(output)
    source = Path(model)
    if not source.name:
        raise UsageError(f"MODEL: '{model}' is no file name")
    return source.with_name(f"{source.stem if source.suffix == '.onnx' else source.name}.{kind}.onnx")


def writable(path: str | Path, option: str) -> Path:
    """``path``; UsageError if no file can be written there."""
    try:
        reason = _unwritable(path)
    except OSError as error:
        reason = f"{path}: {error.strerror or error}"
    if reason is not None:
        raise UsageError(f"{option}{reason if reason.startswith(':') else f' {reason}'}")
    return Path(path)


def _unwritable(path: str | Path) -> str | None:
    if not Path(path).name or str(path) == "-":
        return f": '{path}' is no file name"
    found = regular.destination(path)
    folder = found.parent
    if os.path.isdir(found):
        return f"{path}: is a folder; give a file name"
    if not os.path.isdir(folder):
        return f"{path}: there is no folder {folder}"
    if os.path.exists(found) and not regular.is_regular(found):
        return f"{path}: is not a regular file"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{path}: the folder {folder} is not writable"
    if os.path.exists(found) and not os.access(found, os.W_OK):
        return f"{path}: is write-protected"
    return None


def folder(path: Path, option: str) -> None:
    """Make a folder that shall be written to; UsageError if that cannot be done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except FileExistsError:
        raise UsageError(f"{option} {path}: is not a folder") from None
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be written to: {error.strerror or error}") from None


def report_path(option: str | None, *others: str | Path | None) -> Path | None:
    """The path of ``--report``, None for no report; UsageError if it is one of ``others``."""
    if option is None:
        return None
    path = writable(option, "--report")
    _apart(path, "--report", option, others)
    return path


def json_path(option: str | None, *others: str | Path | None) -> Path | None:
    """The path of ``--json``, None for no report or stdout; UsageError if it is one of ``others``."""
    if option is None or option == "-":
        return None
    path = writable(option, "--json")
    _apart(path, "--json", option, others)
    return path


def _apart(path: Path, name: str, option: str, others: Sequence[str | Path | None]) -> None:
    if any(other is not None and _same_file(path, Path(other)) for other in others):
        raise UsageError(f"{name} {option}: would overwrite a model, or another file of this run")


def _same_file(a: Path, b: Path) -> bool:
    return a.resolve() == b.resolve()


def keep_weights(model: ir.Model, path: Path | None, option: str) -> None:
    """UsageError if ``path`` is a file in which the model's weights lie."""
    from onnxrewrite.io import external

    if path is not None and external.reads_from(model, os.path.abspath(path)):
        raise UsageError(f"{option} {path}: the weights of the model lie there")


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
