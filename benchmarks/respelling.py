"""Respelling: how many equal spellings each rule matches, and what it makes of near misses.

    python benchmarks/respelling.py [--rules NAME ...] [--count 500] [--seed 0] [--json FILE]

The goal: at least 99.5 % of the spellings, and no near miss that is rewritten wrongly.  A near miss that leaves a
legitimate instance of the rule does not count and another is drawn, so that some rules have fewer than asked for.
Exits with 1 where a rule misses the goal.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from onnxrewrite.ir import text
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.metamorphic import near_misses, seeds, spellings

GOAL = 0.995


@dataclass
class Row:
    """The results of one rule."""

    rule: str
    seeds: int
    spellings: int
    matched: int
    near_misses: int
    wrong: int
    seconds: float
    missed: list[str] = field(default_factory=list)
    mistaken: list[str] = field(default_factory=list)

    @property
    def passes(self) -> bool:
        """True if the rule meets the goal; a rule of which no example can be respelled does not."""
        return self.spellings > 0 and self.matched >= GOAL * self.spellings and not self.wrong


def measured(rule: Rule, library: Sequence[Rule], count: int, seed: int) -> Row:
    """Spellings and near misses of one rule; a few of those that went wrong as text."""
    start = time.perf_counter()
    found = seeds(rule, library)
    spelled = list(spellings(found, count, seed)) if found else []
    missed = [s for s in spelled if not s.matched()]
    misses = list(near_misses(found, count, seed))
    wrong = [m for m in misses if m.wrong is not None]
    return Row(
        rule.name,
        len(found),
        len(spelled),
        len(spelled) - len(missed),
        len(misses),
        len(wrong),
        round(time.perf_counter() - start, 1),
        [text.print_model(s.model) for s in missed[:3]],
        [f"{m.mistake}: {m.wrong}\n{text.print_model(m.model)}" for m in wrong[:3]],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", nargs="+", metavar="NAME", help="these rules only")
    parser.add_argument("--count", type=int, default=500, help="spellings, and near misses, for each rule")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there, too")
    options = parser.parse_args(arguments)
    library = list(registry.load(plugins=False))
    unknown = set(options.rules or ()) - {r.name for r in library}
    if unknown:
        parser.error(f"no such rule: {', '.join(sorted(unknown))}")
    print(f"{'rule':<26} {'spellings':>9} {'matched':>8} {'near-misses':>11} {'wrong':>5} {'seconds':>7}")
    rows = []
    for rule in library:
        if options.rules and rule.name not in options.rules:
            continue
        row = measured(rule, library, options.count, options.seed)
        share = f"{row.matched / row.spellings:.1%}" if row.spellings else "none"
        mark = "" if row.passes else "  <- misses the goal"
        print(
            f"{row.rule:<26} {row.spellings:>9} {share:>8} {row.near_misses:>11} {row.wrong:>5} {row.seconds:>7}{mark}",
            flush=True,
        )
        rows.append(row)
    passing = sum(r.passes for r in rows)
    print(f"{passing} of {len(rows)} rules meet the goal")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n", encoding="utf-8")
    return 0 if passing == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
