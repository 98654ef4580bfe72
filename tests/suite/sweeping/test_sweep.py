"""Sweeps: a model that fails costs itself, what is done is done once, and where it is done makes no difference."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sweep_works import Copy, Measuring, write

import onnxrewrite as rw
from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.suite.sweeping.executors import few_threads, threads_for
from onnxrewrite.suite.sweeping.journal import Row
from onnxrewrite.suite.sweeping.tasks import Apply, Optimize
from onnxrewrite.suite.sweeping.zoo import Sweep, check_company

GOLDEN = Path(__file__).resolve().parents[3] / "golden_models"


def told(swept: Sweep) -> dict[str, tuple[str, str]]:
    return {Path(row.model).stem: (row.status, row.error) for row in swept.rows}


def runs() -> list[str]:
    """The models that were worked on, in order of their names."""
    return sorted(line.split()[0] for line in Path("log").read_text().splitlines())


@pytest.mark.slow
def test_a_model_that_fails_costs_itself_only(zoo: Callable[..., Path]) -> None:
    zoo("abort", "bug", "crash", "deep/good", "good", "odd", "wrong")
    Path("zoo/text.onnx").write_text("hello")
    os.symlink("nowhere", "zoo/gone.onnx")
    swept = rw.deploy.sweep("zoo", Copy(log=Path("log").absolute()), "out", jobs=2)
    found = told(swept)
    assert found.pop("good") == ("done", "")
    assert found == {
        "abort": ("died", "its process died of SIGABRT"),
        "bug": ("bug", "ZeroDivisionError: division by zero"),
        "crash": ("died", "its process ended with status 3"),
        "odd": ("unusable", "--opset 3: too old for this one"),
        "text": ("unusable", "is a text file, not a binary ONNX model"),
        "gone": ("unusable", "no such file"),
        "wrong": ("failed", "the result is not equal"),
    }
    assert swept.exit_code == 3
    assert sorted(p.name for p in Path("out").rglob("*") if p.is_file()) == [
        "good.onnx",
        "good.onnx",
        "sweep.html",
        "sweep.jsonl",
    ]
    assert set(Path("log").read_text().split()[1::2]) == {str(threads_for(2))}


@pytest.mark.slow
def test_what_is_done_is_not_done_again(zoo: Callable[..., Path]) -> None:
    zoo("a", "b", "c", "wrong")
    work = Copy(log=Path("log").absolute())
    first = rw.deploy.sweep("zoo", work, "out")
    assert runs() == ["a", "b", "c", "wrong"]
    write(Path("zoo/a.onnx"), RELU_TWICE)  # another model
    Path("out/b.onnx").write_text("damaged")
    second = rw.deploy.sweep("zoo", work, "out")
    assert {row.model: row.resumed for row in second.rows} == {
        "zoo/a.onnx": False,
        "zoo/b.onnx": False,
        "zoo/c.onnx": True,
        "zoo/wrong.onnx": True,
    }
    assert second.rows[3].status == "failed"  # it would fail again, for the same reason
    assert runs() == ["a", "a", "b", "b", "c", "wrong"]
    assert [row.files for row in second.rows][1:] == [row.files for row in first.rows][1:]
    third = rw.deploy.sweep("zoo/c.onnx", Copy(log=work.log, setting=1), "out")
    fourth = rw.deploy.sweep("zoo/c.onnx", Copy(log=work.log, setting=1), "out", fresh=True)
    assert [row.resumed for row in (*third.rows, *fourth.rows)] == [False, False]


RELU_TWICE = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 8] x) => (float[n, 8] y) { a = Relu(x)  y = Relu(a) }"""


class Failing(Executor):
    """Does the first job, loses the second, and takes no more."""

    def __init__(self) -> None:
        self.count = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        if self.count > 2:
            raise BrokenExecutor("taken away")
        future: Future[Any] = Future()
        future.set_result(fn(*args)) if self.count == 1 else future.set_exception(BrokenExecutor("lost"))
        return future


@pytest.mark.slow
def test_an_executor_that_fails_is_replaced(zoo: Callable[..., Path]) -> None:
    zoo("a", "b", "c", "crash")
    swept = rw.deploy.sweep("zoo", Copy(log=Path("log").absolute()), "out", executor=Failing())
    found = told(swept)
    assert found.pop("crash")[0] == "died"
    assert set(found.values()) == {("done", "")}
    (note,) = swept.notes
    assert note.startswith("the executor failed (BrokenExecutor")
    assert note.endswith("one by one: 3 of 4 models")


@pytest.mark.slow
def test_a_pool_whose_processes_die_is_replaced(zoo: Callable[..., Path]) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=os._exit, initargs=(1,)) as pool:
        swept = rw.deploy.sweep(zoo("a"), Copy(log=Path("log").absolute()), "out", executor=pool)
    assert swept.ok
    assert swept.notes[0].startswith("the executor failed (BrokenProcessPool")


@pytest.mark.slow
def test_a_crash_does_not_reach_the_executor(zoo: Callable[..., Path]) -> None:
    with ThreadPoolExecutor(2) as pool:
        swept = rw.deploy.sweep(zoo("a", "crash"), Copy(log=Path("log").absolute()), "out", executor=pool)
        assert told(swept) == {
            "a": ("done", ""),
            "crash": ("died", "its process ended with status 3"),
        }
        assert pool.submit(int, "1").result() == 1
    assert swept.exit_code == 1
    assert swept.notes == []


@pytest.mark.parametrize("on_executor", [False, True])
def test_a_model_that_takes_too_long_is_given_up(zoo: Callable[..., Path], on_executor: bool) -> None:
    with ThreadPoolExecutor(1) as pool:
        where = pool if on_executor else None
        swept = rw.deploy.sweep(zoo("slow"), Copy(log=Path("log").absolute()), "out", executor=where, limit=1)
    assert told(swept) == {"slow": ("died", "its process took longer than 1 s")}


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (["done"], 0),
        (["done", "unusable"], 2),
        (["done", "waiting", "unusable"], 1),
        (["unusable", "failed"], 1),
        (["died", "unusable"], 1),
        (["failed", "bug", "unusable"], 3),
    ],
)
def test_exit_status(statuses: list[Any], code: int) -> None:
    assert Sweep("", {str(n): Row("a", str(n), status) for n, status in enumerate(statuses)}).exit_code == code


def test_measuring_side_by_side_is_refused(zoo: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="models at a time would disturb each other"):
        rw.deploy.sweep(zoo("a"), Measuring(log=Path("log")), "out", jobs=2)
    with pytest.raises(UsageError, match="--jobs 2"):
        check_company(Apply(lower="fastest"), 2)
    check_company(Apply(), 2)
    assert not Path("out").exists()


def test_bad_settings_are_told_before_anything_is_written(zoo: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="no rule"):
        rw.deploy.sweep(zoo("a"), Apply(only=("no-such-rule",)), "out")
    with pytest.raises(UsageError, match="--jobs 0"):
        rw.deploy.sweep("zoo", Apply(), "out", jobs=0)
    assert not Path("out").exists()


def test_an_output_folder_that_cannot_be_made_is_told(zoo: Callable[..., Path]) -> None:
    Path("file").touch()
    with pytest.raises(ModelError, match="cannot be made"):
        rw.deploy.sweep(zoo("a"), Apply(), "file/out")


def test_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with few_threads(2):
        assert (os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]) == ("7", "2")
    assert "MKL_NUM_THREADS" not in os.environ
    with few_threads(0):
        assert "MKL_NUM_THREADS" not in os.environ
    assert threads_for(1) == 0
    assert threads_for(10**6) == 1


@pytest.mark.slow
def test_optimize_writes_a_folder_each_and_goes_on(zoo: Callable[..., Path]) -> None:
    from onnxrewrite.suite.deploy.config import parse

    plan = parse({"stages": ["rewrite"], "rewrite": {"lower": "fused"}, "seconds": 0.1, "dims": {"n": 2, "none": 3}})
    zoo("deep/a")
    swept = rw.deploy.sweep("zoo", Optimize(plan=plan), "out")
    assert swept.ok, swept.rows
    (row,) = swept.rows
    assert row.output == "deep/a/model.onnx"
    assert row.ratio is not None
    assert row.notes[0] == "--dim none: the inputs have no such dimension"
    assert sorted(p.name for p in Path("out/deep/a").iterdir()) == [
        "model.onnx",
        "reference.npz",
        "report.html",
        "report.json",
        "run.py",
    ]
    assert rw.deploy.sweep("zoo", Optimize(plan=plan), "out").rows[0].resumed


def files(swept: Sweep) -> dict[str, str]:
    return {name: digest for row in swept.rows for name, digest in row.files.items()}


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return rw.deploy.sweep(_golden(), Apply(check="fast"), tmp_path_factory.mktemp("one"))


def _golden() -> list[Path]:
    return [GOLDEN / name / "model.onnx" for name in ("nhwc_cnn", "resnext_inception", "mobilenet_hardswish")]


@pytest.mark.slow
@pytest.mark.xdist_group("sweep")
def test_two_processes_make_the_same_bytes(one_by_one: Sweep, tmp_path: Path) -> None:
    assert one_by_one.ok
    assert len(files(one_by_one)) == 6
    assert models(rw.deploy.sweep(_golden(), Apply(check="fast"), tmp_path, jobs=2)) == models(one_by_one)


@pytest.mark.slow
@pytest.mark.xdist_group("sweep")
def test_a_cluster_makes_the_same_bytes(one_by_one: Sweep, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install onnxrewrite[dask]")
    from onnxrewrite.system.cluster import connected

    with connected("dask://local", 2) as cluster:
        swept = rw.deploy.sweep(_golden(), Apply(check="fast"), tmp_path, executor=cluster.executor)
    assert swept.notes == []
    assert models(swept) == models(one_by_one)


def models(swept: Sweep) -> dict[str, str]:
    return {name: digest for name, digest in files(swept).items() if not name.endswith(".json")}
