"""Charts: where things lie, what is cut, which labels find room; and which proposals none beats."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_html_page import HOSTILE, read

from onnxrewrite.report.html.charts import (
    Axis,
    Line,
    Point,
    Row,
    Stroke,
    bars,
    legend_of_bars,
    legend_of_points,
    nice_ticks,
    points,
)
from onnxrewrite.report.html.tradeoff import front

X = Axis("time", 0.25, 4, [(1, "1")], log=True)
Y = Axis("loss", 0, 10, [(0, "0"), (10, "10")])


def drawn(text, name):
    return [attributes for element, attributes in read(text).elements if element == name]


def test_bars_are_as_long_as_they_say():
    text = bars([Row("a", "1", [Stroke("was", 1)]), Row("b", "½", [Stroke("kept", 0.5), Stroke("undone", 0)])], most=2)
    assert [(r["class"], r["width"], r["y"]) for r in drawn(text, "rect")] == [
        ("was", "50%", "0"),
        ("kept", "25%", "0"),
        ("undone", "0%", "15"),
    ]
    assert [s["height"] for s in drawn(text, "svg")] == ["12", "27"]


@pytest.mark.parametrize("value", [2.5, math.inf, math.nan])
def test_a_bar_that_is_too_long_says_so(value):
    text = bars([Row("a", "", [Stroke("was", value)])], most=2)
    assert drawn(text, "rect")[0]["width"] == "100%"
    assert [s["class"] for s in drawn(text, "svg") if "class" in s] == ["on"]
    assert "nan" not in text
    assert "inf" not in text


def test_less_than_nothing_is_drawn_as_nothing():
    assert drawn(bars([Row("a", "", [Stroke("was", -3.0)])], most=2), "rect")[0]["width"] == "0%"


def test_intervals_are_drawn_once_with_a_halo():
    text = bars([Row("a", "", [Stroke("was", 1, 0.9, 1.1)])], most=2, mark=1.5)
    lines = [(line["x1"], line["x2"]) for line in drawn(text, "line")]
    assert lines.count(("45%", "55%")) == 2
    assert ("75%", "75%") in lines
    cut = [(line["x1"], line["x2"]) for line in drawn(bars([Row("a", "", [Stroke("was", 1, 0.5, 9)])], most=2), "line")]
    assert ("25%", "100%") in cut
    assert ("100%", "100%") not in cut


def test_places():
    assert [X.place(v) for v in (0.25, 1, 4)] == pytest.approx([0, 0.5, 1])
    assert [Y.place(v) for v in (-1, 0, 5, 10, math.inf)] == pytest.approx([0, 0, 0.5, 1, 1])


def test_points_lie_where_they_should():
    text = points([Point(1, 5, "kept", "7", "seven", 0.5, 2, ring=True, target="p7")], X, Y)
    (place,) = [s for s in drawn(text, "svg") if s.get("class") == "point"]
    assert (place["x"], place["y"]) == ("50%", "170")
    assert ("25%", "75%") in [(line["x1"], line["x2"]) for line in drawn(text, "line")]
    assert drawn(text, "a") == [{"href": "#p7"}]
    assert "seven" in read(text).texts
    assert [p["class"] for p in drawn(text, "path")] == ["kept", "ring"]


def test_lines_and_the_front():
    lines = [Line(5, "half", True, True), Line(2, "two", False)]
    text = points([], X, Y, lines=lines, front=[(1, 5), (2, 0)])
    kinds = [(line.get("class"), line["x1"], line["x2"], line["y1"], line["y2"]) for line in drawn(text, "line")]
    assert ("mark", "0", "100%", "170", "170") in kinds
    assert ("mark", "75%", "75%", "0", "340") in kinds
    assert [k for k in kinds if k[0] == "front"] == [
        ("front", "50%", "75%", "170", "170"),
        ("front", "75%", "75%", "170", "340"),
    ]
    assert drawn(text, "rect") == [{"width": "100%", "height": "170", "class": "out"}]


def test_labels_do_not_cover_each_other():
    crowd = [Point(1, 5, "undone", str(n), "", ring=n == 7) for n in range(9)]
    labels = re.findall(r'class="label \w+">([^<]*)<', points(crowd, X, Y))
    assert "7" in labels
    assert len(labels) <= 4
    apart = [Point(2.0**n, 5, "kept", str(n), "") for n in (-2, -1, 0, 1)]
    assert sorted(re.findall(r'class="label \w+">([^<]*)<', points(apart, X, Y))) == ["-1", "-2", "0", "1"]


def test_nothing_gets_in_unescaped():
    for name in HOSTILE:
        made = (
            bars([Row(name, name, [Stroke("was", 1)])], 2),
            points([Point(1, 1, "kept", name, name)], X, Y, lines=[Line(1, name, True)]),
            legend_of_bars(("was", name)),
            legend_of_points(("kept ring", name)),
        )
        for text in made:
            kinds = {element for element, _ in read(text).elements}
            assert kinds <= {"ul", "li", "div", "span", "svg", "rect", "line", "path", "g", "title", "text", "p"}
            assert name in read(text).texts


@given(st.floats(1e-6, 1e6), st.floats(1.001, 1e4))
def test_ticks_are_few_and_inside(low, ratio):
    high = low * ratio
    found = nice_ticks(low, high)
    assert len(found) <= 7
    assert all(low * (1 - 1e-6) <= t <= high * (1 + 1e-6) for t in found)
    assert found == sorted(set(found))


def test_ticks_are_round():
    assert nice_ticks(0.83, 1.41) == [0.9, 1.0, 1.1, 1.2, 1.3, 1.4]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_the_front_is_what_none_beats(places):
    found = front(places)
    assert found == sorted(found)
    for place in places:
        beaten = any(o[0] <= place[0] and o[1] <= place[1] and o != place for o in places)
        assert (place in found) is not beaten
