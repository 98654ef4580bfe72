"""Options of the whole suite."""

import gc
import json
import os
import tempfile
from collections.abc import Callable, Iterator

import library
import numpy as np
import onnx
import pytest
from hypothesis import settings
from onnx import parser

from onnxrewrite.ir import custom, schema

# What a model comes to must not depend on how busy the machine is; tests of measuring ask for it.
os.environ["ONNXREWRITE_LOWER"] = "fused"

# Hundreds of interpreters are started here. Where none may leave bytecode beside the source, each would compile it all.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    _BYTECODE = tempfile.TemporaryDirectory(prefix="onnxrewrite-bytecode-")
    os.environ["PYTHONPYCACHEPREFIX"] = _BYTECODE.name

# The same examples in every run: a suite that fails now and then tells nobody what broke it.
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # xdist's order begins with the files of the most tests, not of the longest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests come first where workers share the tests by file, lest one of them runs on alone."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)


_ANSWERS = library.Answers()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Answers about rules count where the reports of all workers come together."""
    _ANSWERS.add(report.nodeid, report.outcome)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """``--update-golden`` renews the fingerprints of rules about which everything was asked."""
    if session.config.getoption("--update-golden") and not hasattr(session.config, "workerinput"):
        passed = _ANSWERS.renewed(json.loads(library.PASSED.read_text(encoding="utf-8")))
        library.PASSED.write_text(json.dumps(passed, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """Collections look at a module's own objects: timing collects often, and of thousands of tests much is left."""
    gc.freeze()
    yield
    gc.collect()


@pytest.fixture
def rng() -> np.random.Generator:
    """Numbers that are a test's own: what it draws does not hang on which tests ran before it."""
    return np.random.default_rng(0)


@pytest.fixture
def nothing_stays() -> Iterator[None]:
    """What a test declares is forgotten, and so are its libraries."""
    kept = dict(custom._DECLARED), dict(schema._DECLARED), os.environ.get(custom.VARIABLE)
    yield
    for known, before in ((custom._DECLARED, kept[0]), (schema._DECLARED, kept[1])):
        known.clear()
        known.update(before)
    os.environ.pop(custom.VARIABLE, None)
    if kept[2] is not None:
        os.environ[custom.VARIABLE] = kept[2]


@pytest.fixture
def model() -> Callable[..., onnx.ModelProto]:
    """Models from ONNX text: everything behind the header."""

    def make(text: str, opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
        header = f'<ir_version: {ir_version}, opset_import: ["": {opset}, "com.microsoft": 1]>'
        return parser.parse_model(f"{header} {text}")

    return make
