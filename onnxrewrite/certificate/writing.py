"""From a result to its certificate, and back: its rewriting can be repeated, and its checks as well."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from onnxrewrite import io
from onnxrewrite.certificate.record import (
    ArrayRecord,
    Certificate,
    CostRecord,
    Files,
    ModelRecord,
    Options,
    OutputRecord,
    Rewrite,
    RuleRecord,
    SpeedRecord,
    Undone,
    path_for,
)
from onnxrewrite.certificate.trust import moved
from onnxrewrite.checks.findings import ModelCheck, model_check
from onnxrewrite.checks.site_record import SiteRecord
from onnxrewrite.compiler.request import Request
from onnxrewrite.compiler.result import Result, Speed
from onnxrewrite.io import preserved
from onnxrewrite.rewrite.fingerprint import digest_of_object, fingerprint, source_digests
from onnxrewrite.rewrite.rule import ON_REQUEST
from onnxrewrite.system.digests import array_digest, sha256_of
from onnxrewrite.system.versions import versions

if TYPE_CHECKING:
    from onnxrewrite.measure.cost_models import Cost


def save(result: Result, path: str | os.PathLike[str], *, arrays: Mapping[str, Path] | None = None) -> None:
    """Write the model and its certificate, which get their names together.

    Args:
        result: The result of ``apply``.
        path: The path to which the model is written.
        arrays: The files of the arrays that were given for the checks, by input.

    Raises:
        ModelError: The model cannot be written, and nothing is.
        IncompleteError: The model is written, and its certificate cannot be.
    """

    def companion(target: Path, files: Mapping[Path, Path]) -> tuple[Path, bytes]:
        own = path_for(path)
        return own, certificate(result, own.parent, target, files, arrays).to_bytes()

    io.save(result.model, path, companion=io.Companion("its certificate", companion))


def certificate(
    result: Result,
    folder: Path | None = None,
    output: Path | None = None,
    files: Mapping[Path, Path] | None = None,
    arrays: Mapping[str, Path] | None = None,
) -> Certificate:
    """The certificate of a result; it reads the input's files, so these must be what they were.

    Args:
        result: The result of ``apply``.
        folder: Paths are written relative to it; the working directory where it is None.
        output: The path to which the model is written; None if it is not.
        files: The files of the output: what they will be called, and what they are called now.
        arrays: The files of the arrays that were given for the checks, by input.
    """
    base = folder or Path()
    known = preserved.origin(result.original)
    source = Path(known.path) if known is not None and known.path is not None else None
    before = {n: source.parent / n for n in (source.name, *known.data_files)} if source is not None and known else {}
    after = {target.name: path for target, path in sorted((files or {}).items())}
    digests = sha256_of([*before.values(), *after.values()])
    prints = {rule.name: fingerprint(rule) for rule in result.rules}
    turned_down = (*result.rewrite_log.failed, *result.rewrite_log.declined)
    applied = [(a, a.record, a.record.id) for a in result.trace.applied]
    sites = {name: record for _, record, name in applied}
    sites |= {record.id: record for _, record, _ in turned_down}
    return Certificate(
        versions=versions(),
        input=Files(_relative(source, base), dict(zip(before, digests, strict=False))) if source is not None else None,
        output=Files(_relative(output, base), dict(zip(after, digests[len(before) :], strict=True)))
        if output
        else None,
        options=_options(result.request, base, arrays or {}),
        rules={name: RuleRecord(each.sha256, sorted(each.modules)) for name, each in prints.items()},
        modules=_modules([source_digests(result.request.sources), *(each.modules for each in prints.values())]),
        sites=sites,
        proofs=_proofs(result, sites.values()),
        rewrites=[Rewrite(a.rule, a.value, a.scope, name) for a, _, name in applied],
        undone=_undone(result),
        assumes=result.assumes,
        structure=list(result.checks.structure),
        model=_model(result.checks.model),
        speed=_speed(result.speed),
    )


def _relative(path: Path, folder: Path) -> str:
    real = os.path.join(os.path.realpath(path.parent), path.name)  # `..` after a link is not where the link is
    try:
        return Path(os.path.relpath(real, os.path.realpath(folder))).as_posix()
    except ValueError:  # on another drive
        return path.absolute().as_posix()


def _modules(found: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """All in one; of rule files that have the same name each counts."""
    known: dict[str, str] = {}
    for name, digest in (each for modules in found for each in modules.items()):
        key = name if known.setdefault(name, digest) == digest else f"{name} {digest[:16]}"
        known[key] = digest
    return known


def _options(request: Request, folder: Path, arrays: Mapping[str, Path]) -> Options:
    """The requested options that bear on the result; paths are relative to ``folder``."""
    return Options(
        target=request.target,
        opset=request.opset,
        dims=dict(request.dims or {}),
        inputs={
            name: ArrayRecord(_relative(arrays[name], folder) if name in arrays else None, array_digest(array))
            for name, array in request.inputs.items()
        },
        check=request.check,
        seed=request.seed,
        rules=[moved(rules, lambda file: _relative(Path(file), folder)) for rules in request.sources],
        lower=request.lowering,
        threads=request.threads,
        budget=request.budget,
        named_sums=request.named_sums,
        only_proved=request.only_proved,
        assume=[each.option for each in ON_REQUEST if each not in request.withheld],
        cost=_cost(request.model_of_cost),
    )


def _cost(cost: Cost | None) -> CostRecord | None:
    if cost is None:
        return None
    from onnxrewrite.measure.cost_models import name_of

    return CostRecord(name_of(cost), digest_of_object(cost))


def _proofs(result: Result, records: Iterable[SiteRecord]) -> dict[str, str]:
    """The scripts of the proofs that records name."""
    check = result.rewrite_log.check
    scripts = check.prover.scripts if check is not None and check.prover is not None else {}
    return {r.proof.sha256: scripts[r.proof.sha256] for r in records if r.proof is not None}


def _undone(result: Result) -> list[Undone]:
    failed = [Undone(*key, "site", reason, record.id) for key, record, reason in result.rewrite_log.failed]
    at_sites = result.trace.failed
    guilty = [Undone(*key, "model", why, None) for key, why in result.checks.undone.items() if key not in at_sites]
    declined = [Undone(*key, "speed", reason, record.id) for key, record, reason in result.rewrite_log.declined]
    slower = [Undone(rule, "", "speed", reason, None) for rule, reason in result.speed.slower.items()]
    return [*dict.fromkeys(failed), *guilty, *dict.fromkeys(declined), *slower]


def _model(check: ModelCheck | None) -> ModelRecord | None:
    if check is None:
        return None
    made = model_check(check)
    outputs = [
        OutputRecord(each["name"], each["ok"], each["error"], each["error_original"], each["allowed"])
        for each in made["outputs"]
    ]
    return ModelRecord(
        ok=made["ok"],
        skipped=made["skipped"],
        identical=made["identical"],
        runs=made["runs"],
        segments=made["segments"],
        samples=made["samples"],
        bindings=made["bindings"],
        reference=made["reference"],
        tolerance=made["tolerance"],
        outputs=outputs,
    )


def _speed(speed: Speed) -> SpeedRecord | None:
    seen = speed.ratio
    return None if seen is None else SpeedRecord(seen.median, seen.low, seen.high, speed.level)
