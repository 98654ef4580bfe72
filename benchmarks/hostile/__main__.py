"""Hostile files over all commands: nothing hangs, crashes, is run, or is written where it was not asked for.

    python -m benchmarks.hostile [--only models certificates signals] [--quick] [--seed N] [--count N] [--json FILE]

Models are damaged ones and bombs, in two thousand million bytes of address space and a minute; certificates are forged,
with right digests; signals come at any moment.  Exits with 1 where anything happens that must not.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.hostile.case import Case, harms
from benchmarks.hostile.certificates import certificates
from benchmarks.hostile.models import models
from benchmarks.hostile.signals import signalled

Maker = Callable[..., Iterable[Case]]
KINDS: dict[str, Maker] = {"models": models, "certificates": certificates, "signals": signalled}
QUICK = 40


class _Counted:
    """Cases, counted as they are taken."""

    def __init__(self, cases: Iterable[Case]):
        self.cases = self.commands = 0
        self._made = cases

    def __iter__(self) -> Iterator[Case]:
        for case in self._made:
            self.cases += 1
            self.commands += len(case.commands)
            yield case


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; 1 where anything happens that must not."""
    parser = report.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--count", type=int, help="cases of each kind; else all")
    asked = parser.parse_args(arguments)
    count = asked.count or (QUICK if asked.quick else None)
    told, rows = report.Report("hostile"), list[report.Row]()
    for kind in asked.only:
        with tempfile.TemporaryDirectory() as folder:
            more = {"count": count} if count is not None else {}
            cases = _Counted(KINDS[kind](Path(folder).resolve(), asked.seed, **more))
            found = 0
            for harm in harms(cases):
                found += 1
                print(harm, flush=True)
        rows.append({"kind": kind, "cases": cases.cases, "commands": cases.commands, "harms": found})
    told.table("Hostile files", rows)
    for row in rows:
        told.goal(f"harms done by {row['kind']}", float(row["harms"] or 0), 0, unit="")
    return told.finish(asked.json)


if __name__ == "__main__":
    sys.exit(main())
