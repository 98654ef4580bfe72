"""The plot of ``profile``: operators by time, and kernels below the machine's roofs.

The roofline is that of Williams, Waterman and Patterson, *Roofline: an insightful visual performance model for
multicore architectures*, CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnxrewrite.measure.profiling import EntryRow, ProfileReport
from onnxrewrite.report.plots import plottable, save_plot

_MOST = 12
"""Operators that have a bar, and kernels that have a name."""

_NAMED = 0.03
"""Share of the run from which on a kernel has a name."""


def bars(data: ProfileReport) -> list[tuple[str, float, float]]:
    """A bar for each operator, the longest first: name, attainable milliseconds, and those beyond; what is left of the
    operators, and of the run, last."""
    found = [(row["op_type"], *_split(row)) for row in data["operators"][:_MOST]]
    rest = data["operators"][_MOST:]
    if rest:
        parts = [_split(row) for row in rest]
        found.append((f"{len(rest)} other", sum(p[0] for p in parts), sum(p[1] for p in parts)))
    if data["outside"] > 0:
        found.append(("in no kernel", 0.0, 1e3 * data["outside"]))
    return found


def _split(row: EntryRow) -> tuple[float, float]:
    """Milliseconds: those that the roofs allow, and those beyond them."""
    attainable = min(row["attainable"], row["seconds"])
    return 1e3 * attainable, 1e3 * (row["seconds"] - attainable)


def points(data: ProfileReport) -> list[tuple[float, float, float, str]]:
    """A point for each kernel of known operations: operations for a byte, and a second, share of the run, name."""
    found = []
    for row in data["kernels"]:
        if row["flops"] and row["bytes"] and row["seconds"]:
            found.append((row["flops"] / row["bytes"], row["flops"] / row["seconds"], row["share"], row["op_type"]))
    return found


def roof(peak: dict[str, float], intensities: Sequence[float]) -> list[float]:
    """Operations a second that a machine allows at so many operations for a byte."""
    return [min(peak["flops"], each * peak["bandwidth"]) for each in intensities]


def plot_profile(data: ProfileReport, path: Path) -> None:
    """Both panels, written to ``path``.

    Raises:
        UsageError: See ``plots.plottable``.
        ModelError: The file cannot be written.
    """
    plottable(path)
    from matplotlib.figure import Figure

    rows, dots = bars(data), points(data)
    figure = Figure(figsize=(12, max(4.0, 0.35 * len(rows) + 1.5)), layout="constrained")
    left, right = figure.subplots(1, 2)
    places = range(len(rows))
    left.barh(places, [row[1] for row in rows], label="that the roofs allow", color="tab:green")
    left.barh(places, [row[2] for row in rows], left=[row[1] for row in rows], label="beyond", color="tab:orange")
    left.set_yticks(places, [row[0] for row in rows])
    left.invert_yaxis()
    left.set_xlabel("milliseconds of a run")
    left.set_title(f"{Path(data.get('model') or 'model').name}: {1e3 * data['latency']['median']:.3g} ms a run")
    left.legend(loc="best")
    lowest = min((dot[0] for dot in dots), default=0.1) / 2
    highest = max((dot[0] for dot in dots), default=100.0) * 2
    across = [lowest * (highest / lowest) ** (n / 100) for n in range(101)]
    for name, peak in sorted(data["peaks"].items()):
        right.plot(across, roof(peak, across), label=f"roof, {name}")
    right.scatter([dot[0] for dot in dots], [dot[1] for dot in dots], [10 + 600 * dot[2] for dot in dots], alpha=0.5)
    for intensity, rate, share, name in sorted(dots, key=lambda dot: -dot[2])[:_MOST]:
        if share >= _NAMED:
            right.annotate(name, (intensity, rate), fontsize="small")
    right.set(xscale="log", yscale="log", xlabel="operations for a byte", ylabel="operations a second")
    right.set_title("kernels below the roofs; area is time")
    right.legend(loc="lower right")
    save_plot(figure, path)
