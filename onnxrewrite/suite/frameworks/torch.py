"""``export``: a PyTorch module as a checked model.

``torch.onnx`` has two exporters: ``dynamo`` follows ``torch.export``, ``torchscript`` traces.  Each fails where the
other does not, and either may make a model that computes something else, so what comes out is compared with the module
before anything is done with it.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from onnxrewrite import io
from onnxrewrite.checks.findings import ModelCheck
from onnxrewrite.errors import UsageError
from onnxrewrite.ir.schema import latest_version
from onnxrewrite.suite.decoders import genai_folder
from onnxrewrite.suite.decoders.genai_conversion import GenaiSettings, genai
from onnxrewrite.suite.deploy.pipeline import Pipeline
from onnxrewrite.suite.frameworks.exported import Attempt, Exported, Optimize, first_right
from onnxrewrite.suite.frameworks.module_check import compare_export
from onnxrewrite.suite.quality.data import must_exist
from onnxrewrite.system import files

if TYPE_CHECKING:
    import torch

    from onnxrewrite.api.application import Result
    from onnxrewrite.suite.frameworks.torch_calls import Call

Exporter: TypeAlias = Literal["auto", "dynamo", "torchscript"]

_PLAIN = "exported.onnx"

OLDEST = 7
"""The first opset that either exporter knows."""


def export(
    module: torch.nn.Module,
    example_inputs: object,
    path: str | Path | None = None,
    *,
    kwargs: Mapping[str, object] | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    dynamic_shapes: object = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    exporter: Exporter = "auto",
    check: bool = True,
    optimize: bool | Optimize | Pipeline | GenaiSettings = True,
    tokenizer: object = None,
    seed: int = 0,
    samples: int = 3,
    **options: object,
) -> Exported:
    """Export a PyTorch module, compare the export with it, and rewrite what is right.

    The module is put into evaluation mode for the export, and back.

    Args:
        module: The module.
        example_inputs: A tensor, or a tuple or mapping of the arguments; what is no tensor becomes a constant.
        path: The file for the model, or the folder for the files of a ``Pipeline``; without it, they go into a
            temporary folder, which is removed when Python ends.
        kwargs: Arguments by keyword.
        dynamic_axes: Axes whose size may vary, by name of the input: ``{"x": {0: "batch"}}`` or ``{"x": [0]}``.
        dynamic_shapes: The same as ``torch.export`` takes it, in the structure of the arguments.
        input_names: Names of the model's inputs; without it those of the parameters of ``forward``.
        output_names: Names of the model's outputs; without it ``output``, or where they are several ``output_0`` or the
            key in what the module returns.
        opset: The model's ai.onnx opset; without it what the exporter recommends.
        exporter: ``dynamo``, ``torchscript``, or ``auto``: the first of both whose model is right.
        check: Compare the export with the module, on the example and on ``samples`` inputs at each of two choices of
            the dynamic sizes; see ``suite.frameworks.module_check``.
        optimize: True to rewrite the model with ``onnxrewrite.apply``; or a ``Pipeline`` that it goes through; or a
            function that does something else, from a path to a ``Result``; or ``GenaiSettings``, which take a decoder
            of Transformers and its ``input_ids`` to a folder that onnxruntime-genai runs.
        tokenizer: Of such a decoder: one of Transformers, or a folder of its files.
        seed: Of the inputs that are made.
        samples: The number of inputs, see ``check``.
        options: For ``onnxrewrite.apply``.

    Raises:
        UsageError: torch is missing, or an argument cannot be used.
        ModelError: No exporter takes the module, or the file cannot be written.
        CheckError: The export does not compute what the module computes, or the pipeline's gate refuses its result.
    """
    _must_have_torch()
    from onnxrewrite.suite.frameworks.torch_calls import Call, evaluating, must_be_module

    must_be_module(module)
    if isinstance(optimize, GenaiSettings):
        given = {"kwargs": kwargs, "dynamic_axes": dynamic_axes, "dynamic_shapes": dynamic_shapes, **options}
        given |= {"input_names": input_names, "output_names": output_names}
        unused = [name for name, value in given.items() if value]
        if unused:
            raise UsageError(f"{unused[0]} is not for a decoder; leave it out")
        asked = {"opset": opset, "exporter": exporter, "check": check, "seed": seed, "samples": samples}
        return _decoder(module, example_inputs, path, optimize, tokenizer, asked)
    if tokenizer is not None:
        raise UsageError("tokenizer is for a decoder, with optimize=GenaiSettings(); leave it out")
    if exporter not in get_args(Exporter):
        raise UsageError(f"exporter must be {', '.join(get_args(Exporter))}, not {exporter!r}")
    if options and optimize is not True:
        raise UsageError(f"{next(iter(options))} is an option of apply, which does not run here; leave it out")
    if dynamic_axes is not None and dynamic_shapes is not None:
        raise UsageError("give dynamic_axes or dynamic_shapes, not both")
    if opset is not None and not OLDEST <= opset <= latest_version():
        raise UsageError(f"opset {opset} is not one from {OLDEST} to {latest_version()}")
    _check_place(path, optimize)
    folder = Path(tempfile.mkdtemp(prefix="onnxrewrite-"))
    try:
        with evaluating(module) as was_training:
            call = Call.of(module, example_inputs, kwargs or {}, input_names)
            outputs = call.output_names(output_names)
            axes = call.axes(dynamic_axes, dynamic_shapes, outputs)
            names = ("dynamo", "torchscript") if exporter == "auto" else (exporter,)
            notes: list[str] = []
            makers = {name: _maker(name, call, axes, outputs, opset, folder / name, notes) for name in names}
            compare = _comparer(call, seed, samples) if check else None
            made, failed = first_right(makers, compare, type(module).__name__)
        if was_training:
            notes.insert(0, "the module was in training mode; it was exported in evaluation mode")
        if isinstance(optimize, Pipeline):
            found = _deployed(made, path, [*notes, *failed], optimize, folder)
        else:
            found = _finished(made, path, [*notes, *failed], _optimizer(optimize, options), folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _remove_when_unused(folder, found, is_asked_for=path is not None)
    return found


def _decoder(
    module: torch.nn.Module,
    example: object,
    path: str | Path | None,
    settings: GenaiSettings,
    tokenizer: object,
    asked: Mapping[str, Any],
) -> Exported:
    """A decoder of Transformers as a folder that onnxruntime-genai runs, by way of an export without its cache."""
    from onnxrewrite.suite.frameworks.torch_decoder import AXES, OUTPUT, WholeText, beside, example_of

    if path is None:
        raise UsageError("a decoder becomes a folder; say which with path")
    genai_folder.require_free(Path(path))
    example = example_of(module, example)
    with tempfile.TemporaryDirectory(prefix="onnxrewrite-") as folder, beside(module, tokenizer) as (config, words):
        whole: Any = {"dynamic_axes": AXES, "output_names": [OUTPUT], "optimize": False, **asked}
        plain = export(WholeText(module), example, Path(folder, _PLAIN), **whole)
        made = genai(plain.path, path, settings, config=config, tokenizer=words)
    return replace(plain, path=Path(path, genai_folder.MODEL), folder=made)


def _must_have_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise UsageError("exporting needs torch, which is not installed: pip install 'onnxrewrite[torch]'") from None


def _check_place(path: str | Path | None, optimize: bool | Pipeline | Optimize) -> None:
    """UsageError where there is no folder for the file, or no data for a pipeline: an export would take long before."""
    if isinstance(optimize, Pipeline):
        must_exist(optimize.data)
    elif path is not None and not (parent := files.destination(path).parent).is_dir():
        raise UsageError(f"{path}: there is no folder {parent}")


def _maker(
    name: str,
    call: Call,
    axes: Mapping[str, Mapping[int, str]],
    output_names: Sequence[str],
    opset: int | None,
    folder: Path,
    notes: list[str],
) -> Callable[[], Path]:
    def make() -> Path:
        from onnxrewrite.suite.frameworks.torch_exporters import run_exporter

        folder.mkdir()
        path = folder / _PLAIN
        notes.extend(run_exporter(name, call, axes, output_names, opset, path))
        return path

    return make


def _comparer(call: Call, seed: int, samples: int) -> Callable[[Path], ModelCheck]:
    def compare(path: Path) -> ModelCheck:
        return compare_export(call, path, call.feeds, seed=seed, samples=samples)

    return compare


def _optimizer(optimize: bool | Optimize, options: Mapping[str, Any]) -> Optimize | None:
    if callable(optimize):
        return optimize
    if not optimize:
        return None

    def run(path: Path) -> Result:
        from onnxrewrite.api.application import apply

        return apply(path, **options)

    return run


def _finished(
    made: Attempt, path: str | Path | None, notes: list[str], optimize: Optimize | None, folder: Path
) -> Exported:
    """The model at its place, rewritten if that is wanted."""
    target = Path(path) if path is not None else folder / "model.onnx"
    result = optimize(made.path) if optimize is not None else None
    if result is not None:
        result.save(target)
    else:
        io.save(io.load(made.path), target)
    return Exported(target, made.exporter, made.comparison, result, notes=_all_notes(made, notes))


def _deployed(made: Attempt, path: str | Path | None, notes: list[str], plan: Pipeline, folder: Path) -> Exported:
    """The result of a pipeline on an export."""
    outcome = plan.run(made.path, path if path is not None else folder / "deployed")
    model = Path(outcome.files["model"])
    return Exported(model, made.exporter, made.comparison, outcome=outcome, notes=_all_notes(made, notes))


def _all_notes(made: Attempt, notes: Sequence[str]) -> tuple[str, ...]:
    found = list(notes)
    if made.comparison is not None:
        found += [*made.comparison.notes, *filter(None, [made.comparison.skipped])]
    return tuple(dict.fromkeys(found))


def _remove_when_unused(folder: Path, made: Exported, *, is_asked_for: bool) -> None:
    """Remove what was exported on the way: the result reads weights and the original there as long as it lives."""
    if not is_asked_for:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    elif made.result is not None:
        weakref.finalize(made.result, shutil.rmtree, folder, ignore_errors=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["Exported", "Exporter", "export"]
