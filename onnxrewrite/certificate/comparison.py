"""Comparison of two certificates: the rewrites to the letter, the checks up to the rounding of another machine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

from onnxrewrite.certificate.record import Certificate, ModelRecord, Rewrite
from onnxrewrite.checks.site_record import CheckRecord

FACTOR: Final = 4.0
"""Errors agree when neither is so many times the other: kernels of other processors sum in another order, and the
largest of many rounding errors varies by less than this."""

FLOOR: Final = 2.0**-23
"""Errors below one unit in the last place of a float32 agree: which of them it is depends on a single rounding."""


def same_error(then: float | None, now: float | None) -> bool:
    """True if two relative errors agree; None is one that is not finite."""
    if then is None or now is None:
        return then is now
    low, high = sorted((max(then, FLOOR), max(now, FLOOR)))
    return high <= FACTOR * low


def other_rewrite(then: Certificate, now: Certificate) -> str | None:
    """The first rewrite that is another one now, or looks otherwise; None if they are all the same."""
    for place, (old, new) in enumerate(zip_longest(then.rewrites, now.rewrites), 1):
        told = f"rewrite {place} was {_named(old)}, is now {_named(new)}"
        if old is None or new is None or (old.rule, old.value, old.scope) != (new.rule, new.value, new.scope):
            return told
        before, after = then.sites[old.site], now.sites[new.site]
        if (before.before, before.after) != (after.before, after.after):
            return f"rewrite {place}, {_named(old)}, looks otherwise now"
    return None


def _named(rewrite: Rewrite | None) -> str:
    return f"{rewrite.rule} at `{rewrite.value}`" if rewrite is not None else "none"


def other_checks(then: Certificate, now: Certificate) -> Iterator[str]:
    """The differences between the checks then and now, one line each; the rewrites are the same."""
    old, new = ({(u.rule, u.value, u.by) for u in c.undone if u.by != "speed"} for c in (then, now))
    for what, keys in (("is undone now", new - old), ("is not undone any more", old - new)):
        yield from (f"{rule} at `{value}` {what}" for rule, value, _ in sorted(keys))
    told: set[tuple[str, str]] = set()
    for a, b in zip(then.rewrites, now.rewrites, strict=True):
        pair = (a.site, b.site)
        if pair not in told:
            told.add(pair)
            yield from (f"{_named(a)}: {d}" for d in _site(then.sites[a.site].check, now.sites[b.site].check))
    if then.structure != now.structure:
        yield f"the structure's problems were {then.structure}, are {now.structure}"
    yield from _model(then.model, now.model)


def _site(then: CheckRecord | None, now: CheckRecord | None) -> Iterator[str]:
    if then is None or now is None:
        if then is not now:
            yield "was checked on one side only"
    elif then.status != now.status:
        yield f"the check said {then.status}, says {now.status}"
    else:
        yield from _error("the error", then.error_rewritten, now.error_rewritten)


def _model(then: ModelRecord | None, now: ModelRecord | None) -> Iterator[str]:
    if then is None or now is None:
        if then is not now:
            yield "the whole model was checked on one side only"
        return
    if (then.ok, then.skipped is None) != (now.ok, now.skipped is None):
        yield f"the whole model: {_verdict(then)} then, {_verdict(now)} now"
    outputs = {o.name: o for o in now.outputs}
    for old in then.outputs:
        new = outputs.get(old.name)
        if new is None or old.ok != new.ok:
            yield f"output {old.name}: {'lost' if new is None else 'another verdict'}"
        else:
            yield from _error(f"output {old.name}: the error", old.error, new.error)


def _error(what: str, then: float | None, now: float | None) -> Iterator[str]:
    if not same_error(then, now):
        yield f"{what} was {_figure(then)}, is {_figure(now)}"


def _figure(error: float | None) -> str:
    return "not finite" if error is None else f"{error:.1e}"


def _verdict(record: ModelRecord) -> str:
    return "not compared" if record.skipped is not None else "equal" if record.ok else "not equal"
