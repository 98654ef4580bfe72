"""Do shared measurements hold?  Models measured on one machine, and compiled on others by what it measured.

    python -m benchmarks.tuning [--count N] [--json FILE]

Machines are folders of one machine, each with its database; one of another class is made by its fingerprint.  Models
are measured on the first, whose signed rows the others import: the second is of its class and has another name, the
third is of another class, and the fourth is told wrong figures with a valid signature.  Then each model is compiled
twice by the file alone.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from benchmarks import report
from onnxrewrite.api.application import apply
from onnxrewrite.measure.database import exchange, known, signing
from onnxrewrite.measure.database.known import Database
from onnxrewrite.measure.database.machine_class import Fingerprint, Host, host
from onnxrewrite.measure.database.rows import Figures, Row
from onnxrewrite.measure.timing import Interval
from onnxrewrite.suite import tuning

ROOT = Path(__file__).resolve().parents[1]
COUNT = 20
BUDGET = 8.0


def models(count: int) -> list[Path]:
    """The smallest of the golden and shared models, by their files."""
    places = (ROOT / "golden_models", ROOT.parent / "shared" / "models")
    found = [path for place in places for path in place.rglob("*.onnx")]
    return sorted(found, key=lambda path: (path.stat().st_size, path.as_posix()))[:count]


@contextmanager
def machine(folder: Path, name: str, fingerprint: Fingerprint | None = None) -> Iterator[Database]:
    """What is compiled within has this machine's name, its database and, if it is given, its fingerprint."""

    def called() -> Host:
        return replace(host(), name=name)

    with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder / name)), mock.patch.object(known, "host", called):
        made = Database(host=called())
        if fingerprint is not None:
            made.remember(fingerprint)
        yield made


def compiled(model: Path, **options: object) -> tuple[str, int, int, float]:
    """The digest of the result, the rewrites that were remembered and measured, and the seconds of the processor."""
    start = time.process_time()
    done = apply(model, lower="fastest", threads=1, budget=BUDGET, check="fast", **options)  # type: ignore[arg-type]
    took = time.process_time() - start
    with tempfile.TemporaryDirectory(prefix="onnxrewrite-") as folder:
        path = Path(folder, "model.onnx")
        done.save(path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    remembered = sum(each.remembered for each in done.speed.weighed)
    return digest, remembered, len(done.speed.weighed) - remembered, took


def poisoned(row: Row) -> Row:
    """The same row with every ratio turned round."""
    if row.question.kind == "levels":
        return row
    ratios = {n: Interval(1 / r.median, 1 / r.high, 1 / r.low) for n, r in row.figures.ratios.items()}
    sides = row.figures.seconds
    return replace(row, figures=Figures({"before": sides["after"], "after": sides["before"]}, ratios))


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--count", type=int, default=COUNT, help=f"models (default {COUNT})")
    given = options.parse_args(argv)
    chosen = models(2 if given.quick else given.count)
    rows: list[report.Row] = [{"model": "/".join(path.parts[-2:])} for path in chosen]
    with tempfile.TemporaryDirectory(prefix="onnxrewrite-") as name:
        quarantined = _run(Path(name), chosen, rows)
    tell = report.Report("tuning")
    tell.table("Models compiled by what another machine measured", rows, "rewrites: remembered and measured; CPU s")
    tell.goal("models with other bytes the second time", sum(not r["same"] for r in rows), 0)
    tell.goal("rewrites of another class of machines that are used", sum(int(str(r["other"])) for r in rows), 0)
    shared, anew = (sum(int(str(r[n])) for r in rows) for n in ("shared", "anew"))
    tell.goal(
        "rewrites that a machine of the class does not measure",
        100 * shared / max(shared + anew, 1),
        75,
        unit="%",
        least=True,
    )
    tell.goal("sources of wrong figures in quarantine", quarantined, 0 if given.quick else 1, least=True)
    return tell.finish(given.json)


def _run(folder: Path, chosen: Sequence[Path], rows: list[report.Row]) -> int:
    key, bad = folder / "key", folder / "bad"
    public = [signing.generate(path) for path in (key, bad)]
    path = folder / "rows.jsonl"
    with machine(folder, "first") as first:
        for row, model in zip(rows, chosen, strict=True):
            _, _, row["measured"], row["CPU s, first"] = compiled(model)
        fingerprint = first.machine_class.fingerprint
        assert fingerprint is not None
        tuning.export(path, key)
    with machine(folder, "second", fingerprint):
        tuning.take([path], public[:1])
        for row, model in zip(rows, chosen, strict=True):
            _, row["shared"], row["anew"], row["CPU s, second"] = compiled(model)
    slow = replace(fingerprint, dispatch=3 * fingerprint.dispatch)
    with machine(folder, "third", slow):
        tuning.take([path], public[:1])
        for row, model in zip(rows, chosen, strict=True):
            row["other"] = compiled(model)[1] if row is rows[0] or row is rows[-1] else 0
    found = exchange.read([path], public[:1])
    private = signing.private_key(bad)
    exchange.write(folder / "poison", [exchange.signed(poisoned(e.row), private) for e in found.signed.values()], "-o")
    with machine(folder, "fourth", fingerprint) as fourth:
        tuning.take([folder / "poison"], public[1:])
        for model in chosen:
            if not fourth.store.quarantined():
                compiled(model)
        quarantined = len(fourth.store.quarantined())
    for row, model in zip(rows, chosen, strict=True):
        made = [compiled(model, measurements=path, signed_by=public[:1]) for _ in range(2)]
        row["same"], row["CPU s, file"] = made[0][0] == made[1][0] and made[0][2] == 0, made[0][3]
    return quarantined


if __name__ == "__main__":
    sys.exit(main())
