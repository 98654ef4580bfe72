"""Other optimizers, each run in a process of its own: what it crashes, hangs or prints is its own affair.

A peer is a row of ``PEERS``.  Each is called as its documentation says, with its defaults, from file to file.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from onnxrewrite.system.workers import Died, in_workers

LIMIT = 300.0
"""Seconds that a peer may take."""


@dataclass(frozen=True)
class Peer:
    """An optimizer.

    Attributes:
        name: Its name.
        package: The installed package, which has the version.
        module: The module that is imported before it is timed.
        optimize: Reads the model in one file and writes the optimized one to another.
    """

    name: str
    package: str
    module: str
    optimize: Callable[[Path, Path], None]

    @property
    def installed(self) -> bool:
        """True if its module is found; it is not imported, so importing it may still fail."""
        try:
            return importlib.util.find_spec(self.module) is not None
        except Exception:  # a parent that is missing, or broken in any way
            return False


def _onnxslim(source: Path, result: Path) -> None:
    import onnx
    import onnxslim

    onnx.save(onnxslim.slim(onnx.load(source)), result)


def _onnxsim(source: Path, result: Path) -> None:
    import onnx
    import onnxsim

    model, equal = onnxsim.simplify(onnx.load(source))
    if not equal:
        raise ValueError("its own check says that the result is not equal")
    onnx.save(model, result)


def _onnxoptimizer(source: Path, result: Path) -> None:
    import onnx
    import onnxoptimizer

    passes = onnxoptimizer.get_fuse_and_elimination_passes()
    onnx.save(onnxoptimizer.optimize(onnx.load(source), passes), result)


def _onnxscript(source: Path, result: Path) -> None:
    import onnx
    import onnxscript.optimizer
    import onnxscript.rewriter

    onnx.save(onnxscript.rewriter.rewrite(onnxscript.optimizer.optimize(onnx.load(source))), result)


def _transformers(source: Path, result: Path) -> None:
    """As a BERT, which is the default, and the type of which it finds the heads by itself.  To run ONNX Runtime's own
    optimizations before, as is the default too, it needs torch."""
    from onnxruntime.transformers.optimizer import optimize_model

    level = None if importlib.util.find_spec("torch") is not None else 0
    optimize_model(os.fspath(source), model_type="bert", opt_level=level).save_model_to_file(os.fspath(result))


def _onnxscript_ort(source: Path, result: Path) -> None:
    import onnx_ir as ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    ir.save(optimize_for_ort(ir.load(source))[0], result)


PEERS = (
    Peer("onnxslim", "onnxslim", "onnxslim", _onnxslim),
    Peer("onnxsim", "onnxsim", "onnxsim", _onnxsim),
    Peer("onnxoptimizer", "onnxoptimizer", "onnxoptimizer", _onnxoptimizer),
    Peer("onnxscript", "onnxscript", "onnxscript.rewriter", _onnxscript),
    Peer("ort-transformers", "onnxruntime", "onnxruntime.transformers.optimizer", _transformers),
)

ORT_FUSIONS = Peer("onnxscript-ort", "onnxscript", "onnxscript.rewriter.ort_fusions", _onnxscript_ort)
"""ONNX Script's fusions for ONNX Runtime, which are not among its defaults."""


@dataclass(frozen=True)
class Attempt:
    """The outcome of running a peer.

    Attributes:
        peer: Its name.
        version: Of its package.
        seconds: From file to file, without importing it.
        path: The result; there is none where there is a ``failure``, in one line.
    """

    peer: str
    version: str = ""
    seconds: float | None = None
    path: Path | None = None
    failure: str = ""


@dataclass(frozen=True)
class _Task:
    peer: Peer
    source: Path
    result: Path


def attempts(peers: Iterable[Peer], source: Path, folder: Path, *, limit: float = LIMIT) -> Iterator[Attempt]:
    """Let each peer optimize the model in ``source``; the results are written to ``folder``.

    Raises nothing that a peer does.  A peer that takes longer than ``limit`` seconds is given up.
    """
    tasks = [_Task(peer, source, folder / f"{peer.name}.onnx") for peer in peers]
    for task, found in in_workers(_attempt, tasks, 1, limit=limit, fresh=True):
        yield Attempt(task.peer.name, failure=f"its process {found.how}") if isinstance(found, Died) else found


def _attempt(task: _Task) -> Attempt:
    _be_silent()
    peer = task.peer
    version = ""
    try:
        version = metadata.version(peer.package)
        importlib.import_module(peer.module)
        start = time.perf_counter()
        peer.optimize(task.source, task.result)
        seconds = time.perf_counter() - start
        if not task.result.is_file():
            raise FileNotFoundError("it wrote no model")
    except (Exception, SystemExit) as error:  # whatever it is, it is a result here
        from onnxrewrite.runtime.session import one_line  # processes start faster without

        return Attempt(peer.name, version, failure=f"{type(error).__name__}: {one_line(error)}")
    return Attempt(peer.name, version, seconds, task.result)


def _be_silent() -> None:
    """Discard what peers print, from C++ too; the process is theirs alone."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)
    os.close(null)
