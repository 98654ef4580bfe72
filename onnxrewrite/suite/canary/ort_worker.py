"""The program that runs in an environment with ONNX Runtime and numpy only: opens, runs and times models as asked.

Requests are lines of JSON on the standard input, answers are lines on the standard output.  It is started by its path,
and must import nothing of onnxrewrite.
"""

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LEVELS = {"disabled": 0, "basic": 1, "extended": 2, "all": 99}

_OPTIMIZER = re.compile(
    r"[A-Z]\w*(?:Fusion\w*|Elimination|Transformer|Optimizer|Folding\w*|Propagation\w*|Remover|Rewrite|Sharing|"
    r"Cleanup|Removal|Replacement|NodeUnit)|Eliminate[A-Z]\w*|Fuse[A-Z]\w*|Remove[A-Z]\w*"
)
"""Names of optimizers as they are spelled; what else looks like one does no harm when it is disabled."""


class Worker:
    """The sessions of this process, by number."""

    def __init__(self) -> None:
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        self.ort = onnxruntime
        self.sessions: dict[int, tuple[Any, dict[str, Any]]] = {}

    def version(self) -> dict[str, Any]:
        """That of ONNX Runtime, and the names that may be optimizers' in its library."""
        capi = Path(self.ort.__file__).parent / "capi"
        names: set[str] = set()
        for path in capi.glob("onnxruntime_pybind11_state*"):
            found = re.findall(rb"(?<=\0)[A-Z]\w{4,60}(?=\0)", path.read_bytes())
            names |= {text for each in found if _OPTIMIZER.fullmatch(text := each.decode("ascii", "replace"))}
        return {"version": self.ort.__version__, "optimizers": sorted(names)}

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Open a model, and run it once: seconds, and where its outputs were written."""
        import numpy as np

        options = self.ort.SessionOptions()
        options.graph_optimization_level = self.ort.GraphOptimizationLevel(LEVELS[request["level"]])
        options.intra_op_num_threads = request["threads"]
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4
        if request.get("optimized"):
            options.optimized_model_filepath = request["optimized"]
        cpu, wall = time.process_time(), time.perf_counter()
        session = self.ort.InferenceSession(
            request["model"],
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=request.get("without") or None,
        )
        took = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        with np.load(request["feeds"], allow_pickle=False) as arrays:
            given = {name: arrays[name] for name in arrays.files}
        names = json.loads(str(given.pop("__names__")))
        feeds = {name: given[f"a{n}"] for n, name in enumerate(names)}
        feeds = {each.name: feeds[each.name] for each in session.get_inputs() if each.name in feeds}
        outputs = session.run(None, feeds)
        values: dict[str, Any] = {}
        for each, value in zip(session.get_outputs(), outputs):  # noqa: B905  # versions may run on Python 3.9
            is_sequence = isinstance(value, list)
            values.update({f"{each.name}[{n}]": v for n, v in enumerate(value)} if is_sequence else {each.name: value})
        kept = {name: value for name, value in values.items() if getattr(value, "dtype", np.dtype("V")).kind in "biufc"}
        if request.get("outputs"):
            plain: dict[str, Any] = {f"a{n}": value for n, value in enumerate(kept.values())}
            plain["__names__"] = np.array(json.dumps(list(kept)))
            np.savez(request["outputs"], **plain)
        self.sessions[request["number"]] = session, feeds
        return {"creation": took, "left": [name for name in values if name not in kept]}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run an open model so many times: seconds for one."""
        session, feeds = self.sessions[request["number"]]
        count = request["count"]
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(count):
            session.run(None, feeds)
        return {"cpu": (time.process_time() - cpu) / count, "wall": (time.perf_counter() - wall) / count}

    def close(self, request: dict[str, Any]) -> dict[str, Any]:
        """Forget a session."""
        self.sessions.pop(request["number"], None)
        return {}

    def peak(self) -> dict[str, Any]:
        """Bytes that this process has had at its peak, and has now; None where the system does not tell."""
        told = {}
        try:
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                told[name] = value.split()
        except OSError:
            return {"peak": None, "now": None}
        return {name: 1024 * int(told[key][0]) for name, key in (("peak", "VmHWM"), ("now", "VmRSS"))}

    def transformers(self, request: dict[str, Any]) -> dict[str, Any]:
        """The graph transformers that a session logs while it opens, and whether each changed the graph."""
        options = self.ort.SessionOptions()
        options.graph_optimization_level = self.ort.GraphOptimizationLevel(LEVELS[request["level"]])
        options.log_severity_level = 1
        with tempfile.TemporaryFile() as file:
            own = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                self.ort.InferenceSession(request["model"], options, providers=["CPUExecutionProvider"])
            except Exception:  # it is told by ``open``
                pass
            finally:
                os.dup2(own, 2)
                os.close(own)
            file.seek(0)
            log = file.read().decode("utf-8", "replace")
        found: dict[str, bool] = {}
        for name, modified in re.findall(r"GraphTransformer (\w+) modified: ([01])", log):
            found[name] = found.get(name, False) or modified == "1"
        return {"transformers": found}


def serve() -> None:
    """Answer requests until there are no more."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            made = getattr(worker, request["do"])
            answer = made(request) if request["do"] not in ("version", "peak") else made()
        except Exception as error:  # ORT raises a dozen classes, one a status code
            answer = {"failure": str(error)}
        out.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    serve()
