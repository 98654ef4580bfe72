"""Peers: whatever they do, it is told and nothing else comes of it."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser
from peer_works import aborts, copies, exits, forgets, hangs, raises, writes_another, writes_rubbish

from onnxrewrite.suite.bench.benchmark import bench
from onnxrewrite.suite.bench.peers import PEERS, Attempt, Peer, attempts

TWICE = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch,8] x) => (float[batch,8] y) { h = Identity(x) y = Relu(h) }"""


def peer(work: object, module: str = "json") -> Peer:
    return Peer(work.__name__, "onnx", module, work)  # type: ignore[attr-defined, arg-type]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(TWICE), path)
    return path


@pytest.mark.slow
def test_what_becomes_of_peers(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One that crashes, one that hangs and so on; the last is as good as the first."""
    bad = [peer(work) for work in (raises, aborts, exits, forgets)]
    found = {a.peer: a for a in attempts([peer(copies), *bad, peer(copies)], source, tmp_path)}
    good = found.pop("copies")
    assert (good.version, good.failure) == (onnx.__version__, "")
    assert good.path is not None
    assert good.path.read_bytes() == source.read_bytes()
    assert good.seconds is not None
    assert {name: a.failure for name, a in found.items()} == {
        "raises": "RuntimeError: not this model",
        "aborts": "its process died of SIGABRT",
        "exits": "SystemExit: usage: peer",
        "forgets": "FileNotFoundError: it wrote no model",
    }
    assert capfd.readouterr() == ("", "")


def test_one_that_hangs_is_given_up(source: Path, tmp_path: Path) -> None:
    (found,) = attempts([peer(hangs)], source, tmp_path, limit=0.5)
    assert found == Attempt("hangs", failure="its process took longer than 0.5 s")


def test_peers_in_a_bench(source: Path) -> None:
    peers = [peer(copies), peer(writes_rubbish), peer(writes_another), peer(aborts)]
    found = bench(source, peers=peers, levels=["all"], memory=False, seconds=0)
    assert [v.name for v in found.timed] == ["original, all", "copies", "writes_another"]
    assert found["copies"].error is not None
    assert (found["copies"].error.largest, found["copies"].version) == (0.0, onnx.__version__)
    assert found["writes_another"].error is not None
    assert found["writes_another"].error.failure
    assert found["writes_rubbish"].failure.startswith("its result cannot be read: ")
    assert found["aborts"].failure == "its process died of SIGABRT"


def test_what_is_missing_is_known_without_importing_it() -> None:
    assert peer(copies).installed
    assert not peer(copies, "nobody_has_this").installed
    assert not peer(copies, "nobody_has_this.inside").installed


@pytest.mark.slow
@pytest.mark.parametrize("known", [p for p in PEERS if p.installed], ids=lambda p: p.name)
def test_those_that_are_installed_optimize(known: Peer, source: Path, tmp_path: Path) -> None:
    (found,) = attempts([known], source, tmp_path)
    assert found.failure == ""
    assert found.path is not None
    assert "Relu" in [n.op_type for n in onnx.load(found.path).graph.node]
    assert found.version
