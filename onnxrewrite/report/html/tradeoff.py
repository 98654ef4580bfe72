"""Quality against time: every proposal a point, what is allowed a line, and those that none beats in both a front."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxrewrite.report.deploy_report import quality_text
from onnxrewrite.report.html.charts import Axis, Line, Point, legend_of_points, nice_ticks, points
from onnxrewrite.report.html.markup import Markup, joined
from onnxrewrite.report.html.proposals import Proposal
from onnxrewrite.system.plain import Plain

_LEAST = 1e-6
"""Of the quality that is lost: less is drawn as nothing, for so much comes of rounding alone."""

_ROOM = 1.7
"""Times, above and below, so that no point lies on the rim."""

_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)
"""Ticks of an axis of times that are far apart."""


def tradeoff(data: Plain, found: Sequence[Proposal]) -> Markup:
    """The field of points and what its forms mean."""
    across = _time_axis([v for p in found for v in _times(p)] + _wanted(data))
    allowed = data["gate"]["max_drop"]
    up = _drop_axis([p.drop for p in found] + ([allowed] if allowed is not None else []))
    lines = [Line(max(allowed, _floor(up)), f"allowed: {allowed:g}", True, True)] if allowed is not None else []
    lines += [Line(ratio, f"target: {data['target']:g} × as fast", False) for ratio in _wanted(data)]
    placed = [(p.trial["metrics"]["ratio"]["median"], _drawn(p.drop, up)) for p in found]
    drawn = [_point(p, x, y) for p, (x, y) in zip(found, placed, strict=True)]
    kinds = [("was", "the original"), ("kept", "kept"), ("undone", "taken back"), ("kept ring", "recommended")]
    kinds.append(("front", "none is both faster and closer"))
    return joined([points(drawn, across, up, lines=lines, front=front(placed)), legend_of_points(*kinds)])


def front(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The Pareto front: those places that none is left of and not above, or below and not right of; left to right."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(set(places)):
        if not best or y < best[-1][1]:
            best.append((x, y))
    return best


def _point(proposal: Proposal, x: float, y: float) -> Point:
    metrics = proposal.trial["metrics"]
    quality = f", {quality_text(metrics['quality'])}"
    return Point(
        x,
        y,
        proposal.kind,
        str(proposal.number) if proposal.number else "original",
        f"{proposal.number}  {proposal.name}: {x:.2f} of the time{quality}; {proposal.state}",
        low=metrics["ratio"]["low"],
        high=metrics["ratio"]["high"],
        ring=proposal.is_final,
        target=f"p{proposal.number}",
    )


def _times(proposal: Proposal) -> list[float]:
    ratio: Plain = proposal.trial["metrics"]["ratio"]
    return [ratio[key] for key in ("median", "low", "high")]


def _wanted(data: Plain) -> list[float]:
    """The time to that of the original that was asked for, if any."""
    return [1 / data["target"]] if data["target"] else []


def _time_axis(values: Sequence[float]) -> Axis:
    """From the fastest to the slowest, a little more; what takes twice as long is as far as what takes half."""
    low, high = min([*values, 0.9]) / 1.06, max([*values, 1.1]) * 1.06
    ticks = [t for t in _RATIOS if low <= t <= high] if high / low > 3 else nice_ticks(low, high)
    return Axis("time of a run, to that of the original", low, high, [(t, f"{t:g}") for t in ticks], log=True)


def _drop_axis(drops: Sequence[float]) -> Axis:
    """Decades, from nothing at the bottom."""
    real = [d for d in drops if _LEAST < d < math.inf]
    low = max(10.0 ** (math.floor(math.log10(min(real, default=1e-3))) - 1), _LEAST)
    high = 10.0 ** math.ceil(math.log10(max(real, default=1e-2)))
    decades = range(round(math.log10(low)) + 1, round(math.log10(high)) + 1)
    ticks = [(low, "none"), *((10.0**n, f"{10.0**n:g}" if n > -4 else f"1e{n}") for n in decades)]
    return Axis("quality lost", low / _ROOM, high * _ROOM, ticks, log=True)


def _floor(axis: Axis) -> float:
    """The value on the axis at which no loss is drawn."""
    return axis.ticks[0][0]


def _drawn(drop: float, axis: Axis) -> float:
    return min(max(drop, _floor(axis)), axis.ticks[-1][0])
