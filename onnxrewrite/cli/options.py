"""Options that several commands share, one by one and in groups, and checks of the paths to write to.

All of it is checked before any long work starts.
"""

from __future__ import annotations

import enum
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxrewrite.cli import input_arrays
from onnxrewrite.errors import UsageError
from onnxrewrite.system import files as regular

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.system.arrays import Outputs


class Mode(enum.StrEnum):
    """Values of ``--mode``; a test compares them with those of the library."""

    DYNAMIC = "dynamic"
    STATIC = "static"
    WEIGHTS = "weights"


class Rounding(enum.StrEnum):
    """Values of ``--algorithm``, likewise."""

    NEAREST = "nearest"
    K_QUANT = "k-quant"
    GPTQ = "gptq"


Model = Annotated[str, typer.Argument(metavar="MODEL", help="The .onnx file.", show_default=False)]
Opset = Annotated[int | None, typer.Option("--opset", min=1, metavar="N", help="Bring it to this ai.onnx opset first.")]
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
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch", min=1, metavar="N", help="Samples in one run: rows of --data that are run and timed at once (1)."
    ),
]
Algorithm = Annotated[
    Rounding,
    typer.Option(
        "--algorithm",
        help="Of weights of 4 bits: to the nearest step, steps of the least error, or fitted to the data.",
    ),
]
ReduceRange = Annotated[bool, typer.Option("--reduce-range", help="7 bits for weights, for processors without VNNI.")]
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
Rules = Annotated[
    list[str],
    typer.Option(
        "--rules",
        metavar="FILE|PACKAGE",
        help="Rules beside the library's; onnxscript:default for those of onnxscript.  Repeatable.",
    ),
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


class Assumed(enum.StrEnum):
    """Values of ``--assume``; a test compares them with those of the library."""

    SCORES_ABOVE_10000 = "scores-above-10000"


Assume = Annotated[
    list[Assumed],
    typer.Option(
        "--assume",
        help="Make an assumption about the data that no rule makes unasked, and that is not tested.  Repeatable.",
    ),
]
CPU = "onnxruntime-cpu"
"""The target where none is asked for."""

Target = Annotated[str, typer.Option("--target", metavar="TARGET", help="What the result must run on; see doctor.")]
AnyTarget = Annotated[
    str | None,
    typer.Option("--target", metavar="TARGET", help="What the result must run on, see doctor; else as --provider."),
]
Executor = Annotated[
    str | None,
    typer.Option("--executor", metavar="dask://HOST:PORT|dask://local", help="Where, if not in own processes."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the generated inputs.")]


SignedBy = Annotated[
    list[Path],
    typer.Option(
        "--signed-by",
        envvar="ONNXREWRITE_SIGNED_BY",
        metavar="KEY.pub",
        help="Public key whose signature on measurements is trusted.  Repeatable.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Measurements of other machines."""

    measurements: Annotated[
        Path | None,
        typer.Option(
            "--measurements",
            envvar="ONNXREWRITE_MEASUREMENTS",
            metavar="FILE",
            help="Measure nothing: choose by this file of tune export, the same everywhere.",
        ),
    ] = None
    signed_by: SignedBy = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The rules that are applied."""

    rules: Rules = field(default_factory=list)
    only: Annotated[
        list[str], typer.Option("--only", metavar="RULE", help="Apply only this rule or rule set.  Repeatable.")
    ] = field(default_factory=list)
    without: Without = field(default_factory=list)
    custom_ops: CustomOps = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """The code with which the work of a certificate is done again."""

    rules: Rules = field(default_factory=list)
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Run the rule files and packages that the certificate names, if they are unchanged."
        ),
    ] = False
    custom_ops: CustomOps = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Place:
    """The hardware that a model must run on."""

    target: AnyTarget = None
    provider: Provider = None

    def found(self) -> tuple[str, str]:
        """The execution provider, by ONNX Runtime's name, and the target: either follows from the other, and is the
        CPU's where neither is given.

        Raises:
            UsageError: There is no such provider, or this ONNX Runtime lacks it.
        """
        from onnxrewrite.ir import target as targets

        known = targets.target(self.target) if self.target is not None else None
        own = known.provider if known is not None else None
        chosen = targets.provider(self.provider) if self.provider is not None else own or targets.provider("cpu")
        return chosen, known.name if known is not None else targets.target_on(chosen)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Sizes and arrays for the inputs of a model."""

    dim: Dims = field(default_factory=list)
    input_: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="NAME=FILE.npy",
            help="Array for an input; the others are generated.  Repeatable.",
        ),
    ] = field(default_factory=list)

    @cached_property
    def dims(self) -> dict[str, int]:
        """Sizes by the names of dimensions; UsageError if an option is none."""
        return input_arrays.sizes(self.dim)

    @cached_property
    def files(self) -> dict[str, Path]:
        """Files by the names of inputs; UsageError if an option is none, or a file is not there."""
        return input_arrays.files(self.input_)

    def check(self) -> None:
        """UsageError if the options cannot be read; whether they fit the model, ``feeds`` sees."""
        _ = self.dims, self.files

    def feeds(self, model: ir.Model) -> Outputs:
        """The arrays; UsageError if they, or the sizes, do not fit the model."""
        return input_arrays.feeds(model, self.files, self.dims)


@dataclass(frozen=True, kw_only=True)
class Output:
    """The report of a result: in a file, on the terminal, or nowhere."""

    json: Json = None
    quiet: Quiet = False

    @property
    def table(self) -> bool:
        """True if it is printed as tables."""
        return not self.quiet and self.json != "-"

    @property
    def line(self) -> bool:
        """True if the result is printed in one line."""
        return self.quiet and self.json != "-"


@dataclass(frozen=True, kw_only=True)
class DetailedOutput(Output):
    """The same, with all details if they are wanted."""

    verbose: Verbose = False


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
