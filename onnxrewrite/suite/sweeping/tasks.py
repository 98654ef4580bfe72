"""The work of a sweep on each model: ``Apply``, ``Optimize``, or the caller's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import onnx

from onnxrewrite import io
from onnxrewrite.certificate.record import path_for
from onnxrewrite.compiler.request import CheckLevel, Lowering, measurements_from
from onnxrewrite.errors import UsageError
from onnxrewrite.inputs.bindings import input_specs, symbols
from onnxrewrite.io import preserved
from onnxrewrite.io.statistics import file_bytes, node_count
from onnxrewrite.suite.quality.functions import is_function
from onnxrewrite.system import files
from onnxrewrite.system.digests import sha256_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxrewrite.suite.deploy.pipeline import Pipeline


@dataclass(frozen=True)
class Made:
    """The result for a model.

    Attributes:
        files: All that was written.
        nodes: Their number, ``before`` and ``after``.
        size: Bytes of the file and of the weights outside of it, likewise.
        ratio: Time of the result to that of the model; None where nothing was measured.
        notes: Further remarks.
    """

    files: tuple[Path, ...]
    nodes: Mapping[str, int] | None = None
    size: Mapping[str, int] | None = None
    ratio: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work on each model.  It is sent to other processes, so it must be possible to pickle it."""

    @property
    def measures(self) -> bool:
        """True if the result depends on measured times: other work at the same time would disturb it."""
        return False

    def place(self, relative: PurePath) -> PurePath:
        """The path of the output of a model, from the model's path, both relative."""
        return relative

    def state(self) -> object:
        """All that the outcome depends on, beside the model and the versions of packages: plain data."""
        raise NotImplementedError

    def run(self, model: Path, target: Path, *, fresh: bool = False) -> Made:
        """Do it: write ``target``, whose folder there is; ``fresh`` forgets what an interrupted run has found.

        Raises:
            CheckError: The result is not right; nothing is written.
            OnnxRewriteError: The model or the settings cannot be used.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Apply(Work):
    """``onnxrewrite apply``: the rewritten model and its certificate.  For the settings, see ``onnxrewrite.apply``.

    ``dims`` may name dimensions that some of the models do not have.
    """

    rules: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    target: str = "onnxruntime-cpu"
    opset: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    check: CheckLevel = "full"
    lower: Lowering = "fused"
    threads: int = 0
    budget: float = 20.0
    seed: int = 0
    measurements: str | None = None
    signed_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        file, keys = measurements_from(self.measurements, self.signed_by)
        object.__setattr__(self, "measurements", os.path.abspath(file) if file is not None else None)
        object.__setattr__(self, "signed_by", tuple(map(os.path.abspath, keys)))

    @property
    def measures(self) -> bool:
        """As it says; a file of measurements stands for measuring."""
        return self.lower == "fastest" and self.measurements is None

    def state(self) -> object:
        """The settings, the digests of all rules that are chosen, and those of the measurements and of their keys."""
        settings = {**asdict(self), "rules": None, "measurements": None, "signed_by": None}
        measured = [self.measurements, *self.signed_by] if self.measurements is not None else []
        named = sha256_of(measured) if self.lower == "fastest" else []
        return ["apply", settings, _rules(self.rules, self.only, self.without), named]

    def run(self, model: Path, target: Path, *, fresh: bool = False) -> Made:
        """Rewrite, check, write."""
        from onnxrewrite.api import application

        loaded = io.load(model)
        dims, notes = _known(self.dims, loaded)
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        result = application.apply(loaded, **{**settings, "dims": dims})
        result.save(target, certificate=True)
        ratio = result.speed.ratio
        return Made(
            files=(*_files(target), path_for(target)),
            nodes={"before": node_count(result.original), "after": node_count(result.model)},
            size={"before": _bytes(model), "after": _bytes(target)},
            ratio=ratio.median if ratio is not None else None,
            notes=(*notes, *result.notes),
        )


@dataclass(frozen=True, kw_only=True)
class Optimize(Work):
    """``onnxrewrite optimize``: a folder for each model, of what the stages of a pipeline come to.

    Attributes:
        plan: The pipeline; its data and metric are named, as ``suite.deploy.config`` reads them, not given as objects.
            Its ``dims`` may name dimensions that some of the models do not have.
    """

    plan: Pipeline

    @property
    def measures(self) -> bool:
        """Every stage is timed."""
        return True

    def place(self, relative: PurePath) -> PurePath:
        """A folder that is called like the model."""
        from onnxrewrite.suite.deploy.emit import MODEL

        return (relative.with_suffix("") if relative.suffix else relative.with_name(f"{relative.name}.deploy")) / MODEL

    def state(self) -> object:
        """The settings of all stages, the digests of the rules that these name, and those of the files of data."""
        plain = {f.name: getattr(self.plan, f.name) for f in fields(self.plan) if f.name not in ("stages", "gate")}
        rules = [_rules(*(getattr(s, n, ()) for n in ("rules", "only", "without"))) for s in self.plan.stages]
        named = [_contents(getattr(self.plan, name)) for name in ("data", "metric")]
        stages = [[stage.name, stage.to_json()] for stage in self.plan.stages]
        return ["optimize", plain, asdict(self.plan.gate), stages, rules, named]

    def run(self, model: Path, target: Path, *, fresh: bool = False) -> Made:
        """Run the pipeline."""
        loaded = io.load(model)
        dims, notes = _known(self.plan.dims, loaded)
        before = {"nodes": node_count(loaded), "size": _bytes(model)}
        del loaded
        outcome = replace(self.plan, dims=dims).run(model, target.parent, fresh=fresh)
        return Made(
            files=(*_files(target), *(p for p in map(Path, outcome.files.values()) if p != target)),
            nodes={"before": before["nodes"], "after": node_count(io.load(target))},
            size={"before": before["size"], "after": _bytes(target)},
            ratio=outcome.final.metrics.ratio.median,
            notes=(*notes, *outcome.notes),
        )


def _known(dims: Mapping[str, int], model: ir.Model) -> tuple[dict[str, int], list[str]]:
    """The sizes of those dimensions that the inputs have, and a note on each of the others."""
    origin, bare = preserved.origin(model), onnx.ModelProto()
    bare.graph.input.extend(origin.inputs if origin is not None else ())
    there = set(symbols(input_specs(bare)))
    notes = [f"--dim {name}: the inputs have no such dimension" for name in dims if name not in there]
    return {name: size for name, size in dims.items() if name in there}, notes


def _files(path: Path) -> list[Path]:
    """The file of a model that was written and those of its external data."""
    origin = preserved.origin(io.load(path))
    return [path, *(path.parent / name for name in (origin.data_files if origin is not None else ()))]


def _bytes(path: Path) -> int:
    return file_bytes(io.load(path))


def _rules(rules: tuple[str, ...], only: tuple[str, ...], without: tuple[str, ...]) -> list[str]:
    """The digests of the rules that are chosen, in their order."""
    from onnxrewrite.rewrite import registry
    from onnxrewrite.rewrite.fingerprint import fingerprint

    return [f"{rule.name} {fingerprint(rule).sha256}" for rule in registry.load(rules).select(only, without)]


def _contents(spec: object) -> list[str]:
    """The digests of the files that ``--data`` or ``--metric`` names; a function of a module has none.

    Raises:
        UsageError: It is an object, of which nobody could tell whether it is still what it was.
    """
    if spec is None:
        return []
    if not isinstance(spec, str):
        raise UsageError("sweep: name data and metric, as in --data DIR or --metric file.py:function")
    path = Path(spec.rpartition(":")[0] if is_function(spec) else spec)
    found = sorted(path.rglob("*")) if os.path.isdir(path) else [path]
    return sha256_of(filter(files.is_regular, found))
