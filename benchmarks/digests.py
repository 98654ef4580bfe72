"""The bytes of what rules make of models, beside those of another version of the project.

    python -m benchmarks.digests --keep FILE [MODEL ...]
    python -m benchmarks.digests --against FILE [MODEL ...] [--json FILE]

Without a MODEL: every golden model, every one below ``../shared/models``, and ONNX Runtime's own optimizer tests below
``../shared/ort_suite``.  Each is rewritten with ``lower="fused"`` and ``check="off"``, so that nothing is measured.
``--keep`` writes digests and numbers of nodes; ``--against`` compares with what was kept, on the same machine: no
result has more nodes, and each that differs is listed.  Constants are computed by ONNX Runtime, whose kernels round
otherwise on another processor.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import onnxrewrite as rw
from benchmarks import report

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

Kept: TypeAlias = dict[str, tuple[str, int]]
"""Model to the digest of the result, or why there is none, and how many nodes it has."""


def models() -> dict[str, Path]:
    """Every model, by a name that does not depend on where the project lies."""
    folders = {"golden": ROOT / "golden_models", "shared": SHARED / "models", "suite": SHARED / "ort_suite"}
    return {
        f"{name}/{path.relative_to(folder).as_posix()}": path
        for name, folder in folders.items()
        for path in sorted(folder.rglob("*.onnx"))
    }


def digest(path: Path) -> tuple[str, int]:
    """The digest of the model that ``apply`` makes of one, and how many nodes it has."""
    try:
        made = rw.apply(path, lower="fused", check="off").to_proto()
    except rw.OnnxRewriteError as error:
        return str(error).replace(os.fspath(path.parent), ""), 0
    return hashlib.sha256(made.SerializeToString(deterministic=True)).hexdigest(), len(made.graph.node)


def differing(before: Kept, now: Kept) -> Iterator[report.Row]:
    """Models whose results differ."""
    for name, (found, nodes) in now.items():
        then = before.get(name)
        if then is None or then[0] != found:
            yield {"model": name, "nodes before": then[1] if then else None, "nodes": nodes}


def main(arguments: Sequence[str] | None = None) -> int:
    """Keep digests, or compare with them; exits with 1 where something differs for the worse."""
    options = report.parser(__doc__)
    options.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    options.add_argument("--keep", type=Path, metavar="FILE")
    options.add_argument("--against", type=Path, metavar="FILE")
    given = options.parse_args(arguments)
    if (given.keep is None) == (given.against is None):
        options.error("give --keep FILE or --against FILE")
    chosen = {path.name: path for path in given.models} or models()
    found = {name: digest(path) for name, path in chosen.items()}
    if given.keep is not None:
        given.keep.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
        return 0
    before: Kept = {name: (each[0], each[1]) for name, each in json.loads(given.against.read_text()).items()}
    out = report.Report("digests")
    rows = list(differing(before, found))
    if rows:
        out.table("Results that differ", rows)
    worse = [r for r in rows if r["nodes before"] is None or int(r["nodes"] or 0) > int(r["nodes before"])]
    out.goal(f"results with more nodes, of {len(found)}", len(worse), 0, unit="")
    out.goal("results that differ", len(rows), 0, unit="")
    return out.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
