"""Numbers and names as a person reads them.  Knows nothing of rich, so that plain lines can use it too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnxrewrite.system.plain import Plain


def size(count: float) -> str:
    """``11.97 MB``: bytes in decimal units, three or four digits."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        count /= 1000
        if count < 999.95 or unit == "TB":
            break
    return f"{count:.{2 if count < 100 else 1}f} {unit}"


_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def duration(time: float, *, like: float | None = None) -> str:
    """``1.23 ms``: seconds in the unit that suits ``like``, or the time itself, three digits."""
    unit, factor = _unit(abs(time if like is None else like))
    return f"{digits(time / factor)} {unit}"


def durations(low: float, high: float) -> str:
    """``1.21–1.26 ms``: both in the unit that suits the lower."""
    unit, factor = _unit(low)
    return f"{digits(low / factor)}–{digits(high / factor)} {unit}"


def _unit(time: float) -> tuple[str, float]:
    return next((each for each in _TIMES if time >= 0.9995 * each[1]), _TIMES[-1])


def digits(number: float) -> str:
    """``1.23``, ``12.3``, ``1234``: three digits, or all before the point."""
    size = abs(number)
    return f"{number:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def error(number: float | None) -> str:
    """``3.1e-07``; ``0`` for none at all, ``not finite`` where there is no number."""
    if number is None:
        return "not finite"
    return f"{number:.1e}" if number else "0"


def signed(number: int) -> str:
    """``+3``, ``-91``; empty for no change."""
    return f"{number:+d}" if number else ""


def change(before: float, after: float) -> str:
    """``-9.1%``; empty for no change worth a digit."""
    text = f"{100 * (after / before - 1):+.1f}%" if before else ""
    return "" if text in ("+0.0%", "-0.0%") else text


def plural(count: int, noun: str) -> str:
    """``1 run``, ``6 runs``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}es" if noun.endswith(("s", "x", "ch")) else f"{count} {noun}s"


def sizes(binding: Mapping[str, int]) -> str:
    """``batch=2 seq=7``."""
    return " ".join(f"{name}={value}" for name, value in binding.items())


def listed(items: Iterable[str], limit: int | None = None) -> str:
    """``a, b, c``, or ``a, b and 7 more``."""
    known = list(items)
    if limit is None or len(known) <= limit:
        return ", ".join(known)
    return f"{', '.join(known[:limit])} and {len(known) - limit} more"


def seconds(phases: Mapping[str, float]) -> str:
    """``rewrite 0.50, check model 1.16``, longest first."""
    return ", ".join(f"{name} {time:.2f}" for name, time in sorted(phases.items(), key=lambda item: -item[1]))


def ratio(interval: Plain) -> str:
    """``0.71 (0.69 to 0.73) of``, or ``1.30 (1.21 to 1.40) times``; the interval is that of 95 %, if there is one."""
    of = "of" if interval["median"] < 1 else "times"
    if interval["low"] == interval["high"]:  # it was not measured
        return f"{interval['median']:.2f} {of}"
    return f"{interval['median']:.2f} ({interval['low']:.2f} to {interval['high']:.2f}) {of}"


def speed(*speedups: float) -> str:
    """``2.31 times as fast``, ``2.40 to 2.60 times as fast``, ``1.04 times as slow``."""
    is_slower = max(speedups) < 0.995  # what is written as 1.00 is not
    shown = [f"{1 / s if is_slower else s:.2f}" for s in sorted(speedups, reverse=is_slower)]
    return f"{' to '.join(shown)} times as {'slow' if is_slower else 'fast'}"


def share(number: float) -> str:
    """``12.3%``."""
    return f"{100 * number:.1f}%" if abs(number) < 9.995 else f"{100 * number:.0f}%"


def shortened(name: str, width: int) -> str:
    """The end of a long name, which tells more than its beginning: ``…/layer.0/output/dense/MatMul``."""
    return name if len(name) <= width else f"…{name[len(name) - width + 1 :]}"


def cut(name: str, width: int) -> str:
    """The beginning of a long name: ``SkipLayerNormal…``."""
    return name if len(name) <= width else f"{name[: width - 1]}…"
