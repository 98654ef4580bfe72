"""Numbers as people read them."""

import pytest

from onnxrewrite.report import human


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (11_966_174, "11.97 MB"), (123_456_789, "123.5 MB"),
        (999_949_999, "999.9 MB"), (999_950_000, "1.00 GB"), (3_200_000_000, "3.20 GB"), (5e15, "5000.0 TB"),
    ],
)  # fmt: skip
def test_size(count, text):
    assert human.size(count) == text


@pytest.mark.parametrize(("number", "text"), [(3.14e-7, "3.1e-07"), (0.0, "0"), (None, "not finite"), (2.0, "2.0e+00")])
def test_error(number, text):
    assert human.error(number) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [(100, 91, "-9.0%"), (100, 100, ""), (100000, 100001, ""), (0, 5, ""), (10, 20, "+100.0%")],
)
def test_change(before, after, text):
    assert human.change(before, after) == text


def test_words():
    assert [human.plural(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert human.plural(2, "pass") == "2 passes"
    assert human.signed(3) == "+3"
    assert human.signed(-3) == "-3"
    assert human.signed(0) == ""
    assert human.listed("abc") == "a, b, c"
    assert human.listed("abc", 3) == "a, b, c"
    assert human.listed("abcd", 2) == "a, b and 2 more"
    assert human.listed([]) == ""
    assert human.sizes({"batch": 2, "seq": 7}) == "batch=2 seq=7"
    assert human.seconds({"a": 0.5, "b": 1.25}) == "b 1.25, a 0.50"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.00 µs"), (1.23e-7, "0.12 µs"), (9.996e-4, "1.00 ms"), (9.99e-4, "999 µs"), (0.012345, "12.3 ms"),
     (0.9994, "999 ms"), (0.9996, "1.00 s"), (75.04, "75.0 s"), (1234.5, "1234 s")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert human.duration(seconds) == text


def test_two_durations_share_their_unit() -> None:
    assert human.durations(0.000998, 0.00102) == "998–1020 µs"
    assert human.durations(0.0012, 0.0013) == "1.20–1.30 ms"


@pytest.mark.parametrize(
    ("speedups", "text"),
    [((2.314,), "2.31 times as fast"), ((2.4, 2.6), "2.40 to 2.60 times as fast"), ((1.0,), "1.00 times as fast"),
     ((0.998,), "1.00 times as fast"), ((0.96,), "1.04 times as slow"), ((0.92, 0.97), "1.03 to 1.09 times as slow"),
     ((0.97, 1.02), "0.97 to 1.02 times as fast")],
)  # fmt: skip
def test_speeds(speedups: tuple[float, ...], text: str) -> None:
    assert human.speed(*speedups) == text
