"""Lengths: what a command takes for a model that is long in one respect, and whether twice as long takes twice that.

    python -m benchmarks.lengths [--quick] [--rounds 3] [--json FILE]

- ``unnamed``: ``inspect`` of 100,000 nodes without names.  Goal: 10 s.
- ``equal``: ``apply``, with all checks, of a chain of 5,000 Identities, each a site that equals the next.  Goal: 5 s.
- ``names``: ``apply`` of 40 sites whose names have 100,000 characters.  Goal: 10 s.
- ``nested``: ``inspect`` of Ifs 16 deep, with 500 nodes each.  Goal: 5 s.

Seconds are the processor's, those of the command in a process of its own, from its start to its end; the least of the
rounds.  Half as long is measured, too.  Goal: the other half takes at most 2.5 times as long.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import onnx
from onnx import TensorProto, helper

from benchmarks import report

GROWTH = 2.5
"""The second half of a model takes at most so many times as long as the first."""


class Length(NamedTuple):
    """A model that is long in one respect.

    Attributes:
        command: The command to run on it; MODEL and OUT stand for files.
        number: The number of the things that it has many of.
        most: Seconds that it may take.
        make: The graph, of so many.
    """

    command: str
    number: int
    most: float
    make: Callable[[int], onnx.GraphProto]


def _graph(nodes: Sequence[onnx.NodeProto], output: str, inputs: Sequence[onnx.ValueInfoProto] = ()) -> onnx.GraphProto:
    made = helper.make_tensor_value_info(output, TensorProto.FLOAT, [4])
    return helper.make_graph(
        nodes, "long", inputs or [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])], [made]
    )


def _chain(op_types: Sequence[str], names: Sequence[str]) -> onnx.GraphProto:
    """A chain of nodes without names, in turn of these operators, each with a result of the next name."""
    read = ("x", *names)
    nodes = [helper.make_node(op_types[i % len(op_types)], [read[i]], [name]) for i, name in enumerate(names)]
    return _graph(nodes, names[-1])


def _unnamed(count: int) -> onnx.GraphProto:
    return _chain(("Relu", "Abs", "Sigmoid"), [f"v{i}" for i in range(count)])


def _equal(count: int) -> onnx.GraphProto:
    return _chain(("Identity",), [f"v{i}" for i in range(count)])


def _long_names(count: int) -> onnx.GraphProto:
    return _chain(("Identity", "Sigmoid"), [f"{'v' * 100_000}{i}" for i in range(2 * count)])


_DEEP = 16
"""Deeper, protobuf itself gives up before long."""


def _nested(count: int) -> onnx.GraphProto:
    """An If in an If, and so on down, each with so many nodes beside it."""
    inner = helper.make_graph([], "bottom", [], [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])])
    inner.node.append(helper.make_node("Identity", ["x"], ["y_0"]))
    inner.output[0].name = "y_0"
    for level in range(1, _DEEP + 1):
        nodes = [helper.make_node("Relu", ["x"], [f"r_{level}_{i}"]) for i in range(count)]
        other = helper.make_graph(
            [helper.make_node("Identity", ["x"], [f"e_{level}"])],
            "other",
            [],
            [helper.make_tensor_value_info(f"e_{level}", TensorProto.FLOAT, [4])],
        )
        nodes.append(helper.make_node("If", ["c"], [f"y_{level}"], then_branch=inner, else_branch=other))
        made = helper.make_tensor_value_info(f"y_{level}", TensorProto.FLOAT, [4])
        inner = helper.make_graph(nodes, f"level_{level}", [], [made])
    inputs = [("c", TensorProto.BOOL, []), ("x", TensorProto.FLOAT, [4])]
    inner.input.extend(helper.make_tensor_value_info(*each) for each in inputs)
    return inner


LENGTHS = {
    "unnamed": Length("inspect MODEL", 100_000, 10.0, _unnamed),
    "equal": Length("apply MODEL -o OUT --threads 1", 5_000, 5.0, _equal),
    "names": Length("apply MODEL -o OUT --threads 1", 40, 10.0, _long_names),
    "nested": Length("inspect MODEL", 500, 5.0, _nested),
}


def seconds(length: Length, count: int, rounds: int) -> float:
    """The processor's seconds that a command takes."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "model.onnx"), Path(folder, "out.onnx")
        imports = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(length.make(count), opset_imports=imports, ir_version=8), path)
        files = {"MODEL": str(path), "OUT": str(out)}
        command = [sys.executable, "-m", "onnxrewrite", *(files.get(w, w) for w in length.command.split())]
        return min(_child(command) for _ in range(rounds))


def _child(command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    options = report.parser(__doc__)
    options.add_argument("--only", nargs="+", choices=LENGTHS, default=list(LENGTHS), help="default: all")
    given = options.parse_args(argv)
    rounds = given.rounds if given.rounds is not None else (1 if given.quick else 3)
    tell = report.Report("lengths")
    rows: list[dict[str, report.Cell]] = []
    for name in given.only:
        length = LENGTHS[name]
        none, half, whole = (seconds(length, n, rounds) for n in (2, length.number // 2, length.number))
        growth = (whole - half) / max(half - none, 0.1 * none)
        rows.append(
            {"long in": name, "command": length.command, "count": length.number, "two (s)": none, "half (s)": half,
             "all (s)": whole, "other half to first": growth}
        )  # fmt: skip
        tell.goal(f"{name}: {length.command} of {length.number:,}", whole, length.most, unit="s")
        tell.goal(f"{name}: the other half against the first", growth, GROWTH)
    tell.table("The processor's seconds of a command, for a long model", rows)
    return tell.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
