"""Bars and points as inline SVG.  Across, all is in percent, so a chart is as wide as its place and its text as large
as the page's; kinds are told apart by form, and coloured by the style sheet only.

Knows nothing of models and reports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from onnxrewrite.report.html.markup import Markup, joined, tag

_BAR, _GAP = 12, 3
"""Pixels: the height of a bar, and between two of a row."""

_HEIGHT = 340
"""Pixels, of a field of points."""

_NARROW = 320.0
"""Pixels: the width of a field of points on a phone, for which labels have to find a place."""

_SHAPES = {
    "was": "M-5-5h10v10h-10z",
    "kept": "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0z",
    "undone": "M0-6.5L6.5 0L0 6.5L-6.5 0z",
    "front": "M-11 0h22",
}
"""A square, a disc, a diamond and a line, each about its middle."""

_RING = "M-10 0a10 10 0 1 0 20 0a10 10 0 1 0-20 0z"


@dataclass(frozen=True)
class Stroke:
    """One bar.

    Attributes:
        kind: The class that it is drawn by: ``was``, ``kept``, ``undone``.
        value: The value at which it ends; it begins at 0.
        low: The lower end of its interval, None for none.
        high: The upper end.
    """

    kind: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Row:
    """Bars with one label.

    Attributes:
        label: Their common label.
        figure: Their values as text.
        strokes: From top to bottom.
    """

    label: object
    figure: object
    strokes: Sequence[Stroke]


def bars(rows: Iterable[Row], most: float, mark: float | None = None) -> Markup:
    """Rows of bars on one scale from 0.

    Args:
        rows: From top to bottom.
        most: The end of the scale; a longer bar ends there with a sign that it goes on.
        mark: The value at which a line goes through all rows.
    """
    items = []
    for row in rows:
        head = tag("div", tag("span", row.label), tag("span", row.figure, class_="figure"), class_="row")
        items.append(tag("li", head, _strokes(row.strokes, most, mark)))
    return tag("ul", *items, class_="bars")


def _strokes(strokes: Sequence[Stroke], most: float, mark: float | None) -> Markup:
    """The bars of a row; what they say stands above them, so it is not said again."""
    height = len(strokes) * (_BAR + _GAP) - _GAP
    parts = [part for number, each in enumerate(strokes) for part in _stroke(each, number * (_BAR + _GAP), most)]
    if mark is not None:
        parts.append(_line(_percent(mark / most), -4, _percent(mark / most), height + 4, "mark"))
    parts.append(_line("0", -2, "0", height + 2, "axis"))
    return tag("svg", *parts, height=height, aria_hidden="true")


def _stroke(each: Stroke, top: int, most: float) -> list[Markup]:
    middle = top + _BAR / 2
    goes_on = not each.value <= most  # what is no number, too
    end = 1.0 if goes_on else max(each.value, 0.0) / most
    parts = [tag("rect", y=top, width=_percent(end), height=_BAR, class_=each.kind)]
    if goes_on:
        parts.append(_at("100%", middle, tag("path", d="M-22 9l7-18h6l-7 18z"), "on"))
    if each.low is not None and each.high is not None and each.low <= most:
        low, high = (_percent(min(max(v, 0.0) / most, 1.0)) for v in (each.low, each.high))
        whisker = [_line(low, middle, high, middle), _line(low, middle - 4, low, middle + 4)]
        if each.high <= most:
            whisker.append(_line(high, middle - 4, high, middle + 4))
        parts += [tag("g", *whisker, class_=kind) for kind in ("halo", "whisker")]
    return parts


@dataclass(frozen=True)
class Axis:
    """One direction of a field of points.

    Attributes:
        title: The quantity that it shows.
        low: The value at which it begins.
        high: The value at which it ends.
        ticks: Numbers, and what is written at them.
        log: True if equal ratios are equally far apart.
    """

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def place(self, value: float) -> float:
        """From 0 to 1; what lies outside is put at its end."""
        inside = min(max(value, self.low), self.high)
        if self.log:
            return math.log(inside / self.low) / math.log(self.high / self.low)
        return (inside - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Point:
    """One point.

    Attributes:
        x: Across.
        y: Upwards.
        kind: ``was``, ``kept`` or ``undone``.
        label: A few letters beside it, where there is room.
        title: The tooltip.
        low: The lower end of its interval across, None for none.
        high: The upper end.
        ring: True if it is the one that matters.
        target: The id of the element that it leads to.
    """

    x: float
    y: float
    kind: str
    label: str
    title: str
    low: float | None = None
    high: float | None = None
    ring: bool = False
    target: str | None = None


@dataclass(frozen=True)
class Line:
    """A straight line through the whole field.

    Attributes:
        value: The value at which it lies.
        text: Its label.
        across: True if it is horizontal.
        shaded: True if the area above it is out of bounds.
    """

    value: float
    text: str
    across: bool
    shaded: bool = False


def points(
    found: Sequence[Point], x: Axis, y: Axis, *, lines: Sequence[Line] = (), front: Sequence[tuple[float, float]] = ()
) -> Markup:
    """Points in a field, with lines through it, and the steps of a front from left to right."""
    parts = [*_grid(x, y)]
    for line in lines:
        parts += _through(line, x, y)
    parts += _steps(front, x, y)
    parts += [_whisker(p, x, y) for p in found if p.low is not None and p.high is not None]
    parts += [_point(p, x, y) for p in found]
    parts += _labels(found, x, y)
    svg = tag("svg", *parts, height=_HEIGHT, role="img", aria_label=f"{y.title} against {x.title}")
    return tag("div", tag("p", y.title, class_="up"), svg, tag("p", x.title, class_="across"), class_="field")


def _grid(x: Axis, y: Axis) -> Iterable[Markup]:
    for value, text in x.ticks:
        at = _percent(x.place(value))
        yield _line(at, 0, at, _HEIGHT, "grid")
        yield tag("text", text, x=at, y=_HEIGHT + 18, class_="tick middle")
    for value, text in y.ticks:
        top = _top(y, value)
        yield _line("0", top, "100%", top, "grid")
        yield tag("text", text, x=-8, y=_number(top + 4), class_="tick end")


def _through(line: Line, x: Axis, y: Axis) -> list[Markup]:
    if line.across:
        top = _top(y, line.value)
        parts = [tag("rect", width="100%", height=_number(top), class_="out")] if line.shaded else []
        label = tag("text", line.text, x="100%", y=_number(top - 6), dx=-6, class_="end said")
        return [*parts, _line("0", top, "100%", top, "mark"), label]
    at = x.place(line.value)
    side, shift = ("end", -6) if at > 0.5 else ("start", 6)
    label = tag("text", line.text, x=_percent(at), dx=shift, y=16, class_=f"{side} said")
    return [_line(_percent(at), 0, _percent(at), _HEIGHT, "mark"), label]


def _steps(front: Sequence[tuple[float, float]], x: Axis, y: Axis) -> list[Markup]:
    """Lines, for a path knows no percents."""
    parts = []
    for (x1, y1), (x2, y2) in pairwise(front):
        left, right, top, bottom = _percent(x.place(x1)), _percent(x.place(x2)), _top(y, y1), _top(y, y2)
        parts += [_line(left, top, right, top, "front"), _line(right, top, right, bottom, "front")]
    return parts


def _whisker(point: Point, x: Axis, y: Axis) -> Markup:
    assert point.low is not None
    assert point.high is not None
    top = _top(y, point.y)
    return _line(_percent(x.place(point.low)), top, _percent(x.place(point.high)), top, "whisker")


def _point(point: Point, x: Axis, y: Axis) -> Markup:
    shapes = [tag("path", d=_SHAPES[point.kind], class_=point.kind)]
    if point.ring:
        shapes.append(tag("path", d=_RING, class_="ring"))
    drawn = tag("g", tag("title", point.title), *shapes)
    if point.target is not None:
        drawn = tag("a", drawn, href=f"#{point.target}")
    return _at(_percent(x.place(point.x)), _top(y, point.y), drawn, "point")


_BESIDE = ((0, -12, "middle"), (10, 4, "start"), (-10, 4, "end"), (0, 20, "middle"))
"""Positions of a label: above, right, left, below; pixels from the point, and which end of it is there."""


def _labels(found: Sequence[Point], x: Axis, y: Axis) -> list[Markup]:
    """Labels where there is room on a narrow page: those that matter first; the others have their titles."""
    spots = [(_NARROW * x.place(p.x), _top(y, p.y)) for p in found]
    taken = [(across - 7, top - 7, across + 7, top + 7) for across, top in spots]
    parts = []
    for number in sorted(range(len(found)), key=lambda n: (not found[n].ring, found[n].kind == "undone", n)):
        point, (across, top) = found[number], spots[number]
        others = [box for n, box in enumerate(taken) if n != number]
        for dx, dy, side in _BESIDE:
            if point.ring:
                dx, dy = dx + 4 * (dx > 0) - 4 * (dx < 0), dy - 3 * (dy < 0) + 3 * (dy > 4)
            box = _box(across + dx, top + dy, len(point.label), side)
            if not any(_overlap(box, other) for other in others):
                taken.append(box)
                at = {"x": _percent(x.place(point.x)), "y": _number(top + dy), "dx": dx}
                parts.append(tag("text", point.label, **at, class_=f"label {side}"))
                break
    return parts


_Box = tuple[float, float, float, float]


def _box(across: float, base: float, letters: int, side: str) -> _Box:
    width = 8.0 * letters
    left = across - {"start": 0.0, "middle": width / 2, "end": width}[side]
    return left, base - 11, left + width, base + 2


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _top(y: Axis, value: float) -> float:
    return _HEIGHT * (1 - y.place(value))


def _at(x: str, y: float, shape: Markup, kind: str) -> Markup:
    """A shape in pixels about a place in percent."""
    return tag("svg", shape, x=x, y=_number(y), class_=kind)


def _line(x1: str, y1: float, x2: str, y2: float, kind: str | None = None) -> Markup:
    return tag("line", x1=x1, y1=_number(y1), x2=x2, y2=_number(y2), class_=kind)


def _percent(share: float) -> str:
    return f"{_number(100 * share)}%"


def _number(value: float) -> str:
    """With two digits behind the point, fewer where they are zero."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def legend_of_bars(*entries: tuple[str, str]) -> Markup:
    """The legend of bars: kinds, and words."""
    return _keys((tag("rect", y=5, width=22, height=_BAR, class_=kind), words) for kind, words in entries)


def legend_of_points(*entries: tuple[str, str]) -> Markup:
    """The legend of points: kinds, and words; ``kept ring`` is one with a ring about it,
    ``front`` the line of the front."""
    keys = []
    for kind, words in entries:
        form, _, ring = kind.partition(" ")
        rings = [tag("path", d=_RING, class_="ring")] if ring else []
        keys.append((_at("50%", 11, joined([tag("path", d=_SHAPES[form], class_=form), *rings]), "point"), words))
    return _keys(keys)


def _keys(entries: Iterable[tuple[Markup, str]]) -> Markup:
    keys = (tag("span", tag("svg", shape, aria_hidden="true"), words) for shape, words in entries)
    return tag("p", *keys, class_="keys")


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most so many round numbers from ``low`` to ``high``: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 5, 10, 20) if s * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]
