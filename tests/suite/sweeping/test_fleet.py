"""Sweeps of many machines: parts that merge, further attempts, storages elsewhere, pages of what there is."""

from __future__ import annotations

import functools
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePath
from threading import Thread
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from sweep_works import RELU, Copy, Exclusive, write

import onnxrewrite as rw
from onnxrewrite.cli.rate import Rate
from onnxrewrite.errors import StoppedError, UsageError
from onnxrewrite.suite.sweeping import job as job_module
from onnxrewrite.suite.sweeping import storage
from onnxrewrite.suite.sweeping.journal import Record, Row
from onnxrewrite.suite.sweeping.retries import Retries, pause
from onnxrewrite.suite.sweeping.shards import Shard
from onnxrewrite.suite.sweeping.tasks import Apply
from onnxrewrite.suite.sweeping.zoo import Conduct, Sweep, conducted
from onnxrewrite.system import workers
from onnxrewrite.system.workers import in_kept_worker


def work() -> Copy:
    return Copy(log=Path("log").absolute())


def runs() -> list[str]:
    return sorted(line.split()[0] for line in Path("log").read_text().splitlines())


class Inline(Executor):
    """Does a job at once, in this process: what is in its memory is seen."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(job_module.run(*args))
        return future


# Parts


def test_every_model_belongs_to_one_part() -> None:
    places = [PurePath(f"a/{n}.onnx") for n in range(300)]
    parts = [Shard.parse(f"{k}/7") for k in range(1, 8)]
    assert [sum(part.has(place) for part in parts) for place in places] == [1] * 300
    assert all(20 <= sum(part.has(place) for place in places) <= 70 for part in parts)


@pytest.mark.parametrize("text", ["", "3", "0/2", "3/2", "1/0", "a/b", "-1/2", "1/2/3"])
def test_parts_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="write K/N, such as 3/50"):
        Shard.parse(text)


@pytest.mark.slow
def test_parts_done_apart_merge_by_copying(zoo: Callable[..., Path]) -> None:
    names = [f"m{n}" for n in range(6)]
    zoo(*names)
    first = rw.deploy.sweep("zoo", work(), "one", shard="1/2")
    second = rw.deploy.sweep("zoo", work(), "two", shard="2/2")
    assert len(first.rows) + len(second.rows) == 6
    assert first.rows
    assert second.rows
    shutil.copytree("two", "one", dirs_exist_ok=True)
    whole = rw.deploy.sweep("zoo", work(), "one")
    assert [row.resumed for row in whole.rows] == [True] * 6
    assert runs() == names


@pytest.mark.slow
def test_parts_in_one_folder_share_its_page(zoo: Callable[..., Path]) -> None:
    zoo(*(f"m{n}" for n in range(6)))
    rw.deploy.sweep("zoo", work(), "out", shard="1/2")
    second = rw.deploy.sweep("zoo", work(), "out", shard="2/2")
    assert sorted(p.name for p in Path("out").glob("sweep*")) == [
        "sweep.1-of-2.jsonl",
        "sweep.2-of-2.jsonl",
        "sweep.html",
    ]
    page = Path("out/sweep.html").read_text()
    assert all(f"zoo/m{n}.onnx" in page for n in range(6))
    assert len(second.others) == 6 - len(second.rows)


def test_of_two_records_the_later_row_counts(tmp_path: Path) -> None:
    for shard, finished, status in (("1/2", 5.0, "done"), ("2/2", 9.0, "died"), ("1/3", 7.0, "done")):
        record = Record(tmp_path, Shard.parse(shard))
        record.begin([])
        record.remember(Row("m", "m", status, finished=finished))  # type: ignore[arg-type]
    waiting = Record(tmp_path)
    waiting.begin([Row("m", "m"), Row("n", "n")])
    assert (row := Record(tmp_path)["m"]) is not None
    assert (row.status, row.finished) == ("died", 9.0)
    assert (row := Record(tmp_path)["n"]) is not None
    assert row.status == "waiting"


# Further attempts


@pytest.mark.slow
def test_what_the_system_killed_is_tried_again(zoo: Callable[..., Path]) -> None:
    zoo("flaky", "good", "crash")
    swept = rw.deploy.sweep("zoo", work(), "out", jobs=2)
    assert {Path(r.model).stem: (r.status, r.reason, r.attempts) for r in swept.rows} == {
        "flaky": ("done", "", 2),
        "good": ("done", "", 1),
        "crash": ("died", "crash", 1),
    }
    assert runs() == ["crash", "flaky", "flaky", "good"]


@pytest.mark.slow
def test_attempts_by_reason(zoo: Callable[..., Path]) -> None:
    zoo("flaky", "crash")
    swept = rw.deploy.sweep("zoo", work(), "out", retry=["memory=0", "crash=2"])
    assert {Path(r.model).stem: (r.status, r.attempts) for r in swept.rows} == {
        "flaky": ("died", 1),
        "crash": ("died", 3),
    }
    assert [pause("storage", n) for n in (1, 2, 3, 4)] == [1, 4, 16, 30]
    assert pause("crash", 1) == 0
    with pytest.raises(UsageError, match="--retry check=1: write REASON=N, REASON being one of memory, crash, time"):
        Retries.parse(["check=1"])


@pytest.mark.slow
def test_what_is_refused_is_refused_once(zoo: Callable[..., Path]) -> None:
    zoo("odd", "wrong")
    Path("zoo/text.onnx").write_text("hello")
    first = rw.deploy.sweep("zoo", work(), "out")
    again = rw.deploy.sweep("zoo", work(), "out")
    assert [row.resumed for row in again.rows] == [True] * 3
    assert [(row.status, row.error) for row in again.rows] == [(row.status, row.error) for row in first.rows]
    write(Path("zoo/text.onnx"))
    assert [row.status for row in rw.deploy.sweep("zoo", work(), "out").rows] == ["unusable", "done", "failed"]


@pytest.mark.slow
def test_what_the_disk_refused_is_tried_in_the_next_sweep(zoo: Callable[..., Path]) -> None:
    zoo("a/good")
    write(Path("out/a"))  # where a folder is to be
    refused = rw.deploy.sweep("zoo", work(), "out").rows[0]
    assert (refused.status, refused.reason) == ("unusable", "file")
    Path("out/a").unlink()
    assert rw.deploy.sweep("zoo", work(), "out").rows[0].status == "done"


@pytest.mark.slow
def test_weights_beside_a_model_of_whatever_name(zoo: Callable[..., Path]) -> None:
    model, weights = with_weights("w.bin")
    zoo("good")
    Path("zoo/startup.onnx").write_bytes(model)
    Path("zoo/w.bin").write_bytes(weights)
    rw.deploy.sweep("zoo", work(), "out")
    assert [row.resumed for row in rw.deploy.sweep("zoo", work(), "out").rows] == [True, True]
    Path("zoo/w.bin").write_bytes(weights[::-1])
    assert [row.resumed for row in rw.deploy.sweep("zoo", work(), "out").rows] == [True, False]


def test_a_process_is_kept_for_an_owner() -> None:
    task = "__import__('os').getpid()"
    first, second = (in_kept_worker(eval, task, "one") for _ in range(2))
    assert first == second
    other = in_kept_worker(eval, task, "two")
    assert other != first
    died = in_kept_worker(eval, "__import__('os').abort()", "two")
    assert getattr(died, "how", "") == "died of SIGABRT"
    late = in_kept_worker(eval, "__import__('time').sleep(60)", "two", limit=0.1)
    assert getattr(late, "how", "") == "took longer than 0.1 s"
    assert in_kept_worker(eval, task, "two") not in (first, other)


def test_a_kept_process_ends_when_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at the moment at which something comes after all."""
    monkeypatch.setattr("onnxrewrite.system.workers._PATIENCE", 0.2)
    task = "__import__('os').getpid()"
    first = in_kept_worker(eval, task, "patience")
    (worker,) = workers._idle["patience"]
    worker._process.join(20)
    assert not worker.is_alive()
    monkeypatch.setattr(worker, "is_alive", lambda: True)  # it was a moment ago
    assert in_kept_worker(eval, task, "patience") not in (first, None)
    fresh = in_kept_worker(eval, "exit(0)", "another")
    assert getattr(fresh, "how", "") == "ended with status 0"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no such locks")
def test_what_measures_has_a_machine_to_itself(zoo: Callable[..., Path]) -> None:
    zoo("a", "b", "c")
    with ThreadPoolExecutor(3) as pool:
        swept = rw.deploy.sweep("zoo", Exclusive(log=Path("log").absolute()), "out", executor=pool)
    assert [row.status for row in swept.rows] == ["done"] * 3
    assert {row.machine for row in swept.rows} == {platform.node()}
    events = [line.split()[0] for line in Path("log.times").read_text().splitlines()]
    assert events == ["begin", "end"] * 3


# Storages elsewhere


@pytest.fixture
def memory() -> Iterator[Any]:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install onnxrewrite[remote]")
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()


def with_weights(name: str) -> tuple[bytes, bytes]:
    """A model whose weights lie in a file beside it, and that file."""
    weights = np.arange(8, dtype=np.float32)
    tensor = numpy_helper.from_array(weights, "w")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=name)
    value = functools.partial(helper.make_tensor_value_info, elem_type=1, shape=["n", 8])
    node = helper.make_node("Add", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [value("x")], [value("y")], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), weights.tobytes()


def test_models_of_a_storage_and_back(zoo: Callable[..., Path], memory: Any) -> None:
    model, weights = with_weights("data/w.bin")
    memory.pipe(
        {
            "/zoo/a.onnx": onnx.parser.parse_model(RELU).SerializeToString(),
            "/zoo/deep/w.onnx": model,
            "/zoo/deep/data/w.bin": weights,
            "/zoo/notes.onnx": b"hello",
            "/zoo/.hidden.onnx": b"",
        }
    )
    first = rw.deploy.sweep("memory://zoo", Apply(check="fast"), "memory://zoo/out", executor=Inline())
    assert {row.output: row.status for row in first.rows} == {
        "a.onnx": "done",
        "deep/w.onnx": "done",
        "notes.onnx": "unusable",
    }
    assert set(memory.find("/zoo/out")) >= {
        "/zoo/out/a.onnx",
        "/zoo/out/a.onnx.certificate.json",
        "/zoo/out/deep/w.onnx",
        "/zoo/out/sweep.html",
        "/zoo/out/sweep.jsonl",
    }
    again = rw.deploy.sweep("memory://zoo", Apply(check="fast"), "memory://zoo/out", executor=Inline())
    assert [row.resumed for row in again.rows] == [True] * 3
    memory.pipe("/zoo/deep/data/w.bin", weights[::-1])  # the weights change, the model's file does not
    memory.rm_file("/zoo/out/a.onnx")
    third = rw.deploy.sweep("memory://zoo", Apply(check="fast"), "memory://zoo/out", executor=Inline())
    assert {row.output: row.resumed for row in third.rows} == {
        "a.onnx": False,
        "deep/w.onnx": False,
        "notes.onnx": True,
    }


def test_what_is_known_is_not_fetched(zoo: Callable[..., Path], memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe("/zoo/a.onnx", onnx.parser.parse_model(RELU).SerializeToString())
    rw.deploy.sweep("memory://zoo", work(), "memory://out", executor=Inline())
    monkeypatch.setattr(memory, "get_file", lambda *given, **options: pytest.fail("fetched"))
    assert rw.deploy.sweep("memory://zoo", work(), "memory://out", executor=Inline()).rows[0].resumed


def test_a_storage_that_fails_is_asked_again(
    zoo: Callable[..., Path], memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe({f"/zoo/{n}.onnx": onnx.parser.parse_model(RELU).SerializeToString() for n in ("a", "b")})
    get_file, failures = memory.get_file, iter([OSError("connection reset"), TimeoutError("slow down")])

    def failing(path: str, *given: Any, **options: Any) -> None:
        if path.endswith("a.onnx") and (error := next(failures, None)) is not None:
            raise error
        get_file(path, *given, **options)

    monkeypatch.setattr(memory, "get_file", failing)
    monkeypatch.setattr("onnxrewrite.suite.sweeping.retries._PAUSE", 0.01)
    swept = rw.deploy.sweep("memory://zoo", work(), "out", executor=Inline())
    assert [(row.status, row.attempts) for row in swept.rows] == [("done", 3), ("done", 1)]


def test_a_model_that_changes_while_it_is_fetched_is_fetched_again(
    zoo: Callable[..., Path], memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/zoo/a.onnx", onnx.parser.parse_model(RELU).SerializeToString())
    get_file, changed = memory.get_file, onnx.parser.parse_model(RELU.replace("Relu", "Abs")).SerializeToString()

    def changing(path: str, *given: Any, **options: Any) -> None:
        get_file(path, *given, **options)
        if memory.cat_file("/zoo/a.onnx") != changed:
            memory.pipe("/zoo/a.onnx", changed)

    monkeypatch.setattr(memory, "get_file", changing)
    for resumed in (False, False, True):
        assert rw.deploy.sweep("memory://zoo", work(), "out", executor=Inline()).rows[0].resumed is resumed
    assert Path("out/a.onnx").read_bytes() == changed


def test_what_cannot_be_fetched_is_told(zoo: Callable[..., Path], memory: Any) -> None:
    with pytest.raises(UsageError, match="no model in memory://nowhere"):
        rw.deploy.sweep("memory://nowhere", work(), "out", executor=Inline())
    memory.pipe("/zoo/a.onnx", b"x")
    with pytest.raises(UsageError, match="lies there and is to be read"):
        rw.deploy.sweep("memory://zoo", work(), "memory:///zoo", executor=Inline())
    with storage.staged("memory://zoo/a.onnx", "out") as place:
        assert place.model.read_bytes() == b"x"
    assert not place.model.exists()


def test_a_storage_that_takes_no_record_for_a_while(
    zoo: Callable[..., Path], memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe({f"/zoo/{n}.onnx": onnx.parser.parse_model(RELU).SerializeToString() for n in "abc"})
    monkeypatch.setattr("onnxrewrite.suite.sweeping.journal._PAUSE", 0.0)
    monkeypatch.setattr("onnxrewrite.suite.sweeping.zoo._PAUSE", 0.0)
    write_bytes, refused = storage.write_bytes, list[str]()

    def failing(url: str, contents: bytes) -> None:
        if (len(refused) < 4 and ".00000" in url) or (url.endswith(".html") and "sweep.html" not in refused):
            refused.append(url.rpartition("/")[2])
            raise storage.StorageError(f"{url}: slow down")
        write_bytes(url, contents)

    monkeypatch.setattr("onnxrewrite.suite.sweeping.journal.write_bytes", failing)
    monkeypatch.setattr("onnxrewrite.suite.sweeping.zoo.write_bytes", failing)
    swept = rw.deploy.sweep("memory://zoo", work(), "memory://out", executor=Inline())
    assert [row.status for row in swept.rows] == ["done"] * 3
    assert refused.count("sweep.html") == 1
    assert len(refused) >= 3
    assert {row.status for row in Record("memory://out").rows.values()} == {"done"}
    assert memory.exists("/out/sweep.html")


def test_a_part_of_a_record_that_goes_while_all_are_read(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Record("memory://out").begin([Row("a", "a")])
    names = ["sweep.1-of-2.000001.jsonl", "sweep.jsonl"]
    monkeypatch.setattr("onnxrewrite.suite.sweeping.journal.list_names", lambda url: names)
    assert set(Record("memory://out").rows) == {"a"}


def test_records_of_a_storage_lose_nothing(memory: Any) -> None:
    record = Record("memory://out")
    record.begin([Row("a", "a"), Row("b", "b")])
    record.remember(Row("a", "a", "done", finished=1.0))
    record.remember(Row("b", "b", "done", finished=2.0))
    assert Record("memory://out").rows["a"].status == "done"  # written at once
    record.close()
    assert len(memory.find("/out")) == 3
    again = Record("memory://out")
    assert {output: row.status for output, row in again.rows.items()} == {"a": "done", "b": "done"}
    again.begin([])
    assert memory.find("/out") == ["/out/sweep.jsonl"]
    assert Record("memory://out").rows == again.rows


@pytest.mark.slow
def test_other_processes_fetch_and_store(zoo: Callable[..., Path]) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install onnxrewrite[remote]")
    zoo("a", "deep/b", "crash")
    given, out = (f"file://{Path(name).absolute()}" for name in ("zoo", "out"))
    swept = rw.deploy.sweep(given, work(), out, jobs=2)
    assert {row.output: row.status for row in swept.rows} == {
        "a.onnx": "done",
        "deep/b.onnx": "done",
        "crash.onnx": "died",
    }
    assert Path("out/deep/b.onnx").read_bytes() == Path("zoo/deep/b.onnx").read_bytes()
    assert [row.resumed for row in rw.deploy.sweep(given, work(), out).rows] == [True, False, True]


def test_models_of_a_server(zoo: Callable[..., Path]) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install onnxrewrite[remote]")
    pytest.importorskip("aiohttp", reason="fsspec reads http with aiohttp: pip install aiohttp")
    zoo("a", "b")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=os.getcwd()))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/zoo/"
        swept = rw.deploy.sweep([f"{url}a.onnx", f"{url}b.onnx"], work(), "out")
        assert [row.status for row in swept.rows] == ["done", "done"]
        again = rw.deploy.sweep([f"{url}a.onnx", f"{url}b.onnx"], work(), "out")
        assert [row.resumed for row in again.rows] == [True, True]
        assert runs() == ["a", "b"]
    finally:
        server.shutdown()
        server.server_close()


# What there is to see


@pytest.mark.slow
def test_a_sweep_that_is_stopped_leaves_what_it_has(zoo: Callable[..., Path]) -> None:
    zoo("a", "b", "c")

    def stop(name: str, done: int, waiting: int) -> None:
        if done == 2:
            raise StoppedError("interrupted")

    done = Sweep("out")
    with pytest.raises(StoppedError):
        conducted("zoo", work(), Conduct(), done, stop)
    assert [row.status for row in done.rows] == ["done", "done", "waiting"]
    assert done.exit_code == 1
    assert "1 model of 3 not done yet: the same command goes on." in Path("out/sweep.html").read_text()

    def stop_at_once(name: str, done: int, waiting: int) -> None:
        raise StoppedError("interrupted")

    again = Sweep("out")
    with pytest.raises(StoppedError):
        conducted("zoo", work(), Conduct(), again, stop_at_once)
    assert [(row.status, row.resumed) for row in again.rows] == [("done", True), ("done", True), ("waiting", False)]
    assert [row.resumed for row in rw.deploy.sweep("zoo", work(), "out").rows] == [True, True, False]
    assert "All models are done." in Path("out/sweep.html").read_text()


@pytest.mark.slow
def test_a_page_tells_reasons_and_escapes_names(zoo: Callable[..., Path]) -> None:
    zoo("good", "wrong", "<b>odd")
    rw.deploy.sweep("zoo", work(), "out")
    page = Path("out/sweep.html").read_text()
    assert "1 model of 3 not done." in page
    assert "the result is not equal" in page
    assert "<b>odd" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_the_rate_is_that_of_the_last_models() -> None:
    now = 0.0
    rate = Rate(lambda: now)
    assert rate.text("model", 100) == ""
    for done in range(1, 1001):  # known ones, a thousand a second
        now += 0.001
        rate.note(done)
    for done in range(1001, 1101):
        now += 2.0
        rate.note(done)
    assert rate.text("model", 30) == "2.0 s a model, 60 s left"
    assert rate.text("model", 3000) == "2.0 s a model, 1.7 h left"
    rate.note(3)  # another phase
    now += 0.5
    rate.note(5)
    assert rate.text("model", 1000) == "4.0 models a second, 4 min left"


@pytest.mark.slow
@pytest.mark.xdist_group("sweep")
def test_a_small_fleet_loses_nothing(tmp_path: Path) -> None:
    """Two workers, the command killed twice, a worker lost, broken files: ``benchmarks.fleet`` with few models."""
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install onnxrewrite[dask]")
    from benchmarks import fleet

    told = fleet.fleet(tmp_path, 50, 7)
    met = {goal["goal"]: goal["met"] for goal in told.goals}
    met.pop("overhead for a model, of the processor")  # that of starting the commands, with few models
    assert len(met) == 5
    assert all(met.values()), told.goals
    assert {row["outcome"]: row["models"] for row in told.tables["Models by outcome"]} == {"done": 49, "unusable": 1}
