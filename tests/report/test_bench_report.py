"""What is shown of a bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from onnxrewrite.errors import UsageError
from onnxrewrite.measure.timing import Interval, Timing
from onnxrewrite.report.bench_report import bars, bench_report, plottable
from onnxrewrite.runtime.settings import Setting
from onnxrewrite.suite.bench.benchmark import Bench, Error, Variant

HALF = Timing((0.001, 0.0011, 0.0012), (0.002, 0.002, 0.002))
WHOLE = Timing((0.002, 0.0022, 0.0024), (0.002, 0.002, 0.002))


def data(**more: Any) -> dict[str, Any]:
    reference = Variant(
        "original, all", "original", "all", nodes=10, size=1000, timing=WHOLE, ratio=Interval(1.0, 1.0, 1.0)
    )
    ours = Variant(
        "ours", "ours", "all", optimization=1.5, nodes=4, size=900, timing=HALF, ratio=Interval(0.5, 0.49, 0.51),
        creation=Interval(0.01, 0.009, 0.011), memory=12_340_000, error=Error(3e-7), **more,
    )  # fmt: skip
    lost = Variant("onnxsim", "peer", "all", "0.4", failure="RuntimeError: not this one")
    return Bench("m.onnx", Setting(threads=2), {"batch": 1}, [reference, ours, lost], ["a note"]).to_json()


def shown(what: dict[str, Any]) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(bench_report(what))
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


REPORT = """\
m.onnx: at batch=1, CPUExecutionProvider, 2 threads, 3 rounds

  variant        latency  95 %          ratio  95 %       CPU time  opens in    memory
  original, all  2.20 ms  2.00–2.40 ms   1.00              2.00 ms
  ours           1.10 ms  1.00–1.20 ms   0.50  0.49–0.51   2.00 ms   10.0 ms  12.34 MB

  model     nodes     size  optimized in  largest error
  original     10  1.00 kB
  ours          4    900 B        1.50 s        3.0e-07

  samples a second  batch 1  batch 16
  original, all
  ours                  910      3210

  Failed  onnxsim: RuntimeError: not this one
  Note    a note
"""


def test_report() -> None:
    made = data(throughput={1: Interval(910.0, 800.0, 1000.0), 16: Interval(3210.4, 3000.0, 3300.0)})
    assert shown(made) == REPORT


def test_bars_reach_as_far_as_intervals() -> None:
    (_, ours) = bars(data())
    assert ours == ("ours", pytest.approx(1.1), pytest.approx(0.1), pytest.approx(0.1))


def test_a_plot_needs_a_format() -> None:
    with pytest.raises(UsageError, match=r"must end in \.png, \.svg, \.pdf"):
        plottable(Path("bench.docx"))
