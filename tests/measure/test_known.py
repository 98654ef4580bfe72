"""Rows of others are used on machines of their class, tried now and then, and a source that lies is found out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_rows import CLASS, FAST, HERE, OTHER, figures, file_of, key_in, public, question, row

from onnxrewrite.errors import UsageError
from onnxrewrite.measure.database import exchange, known, machine_class, signing, store
from onnxrewrite.measure.database.known import ONE_IN, Database, Frozen, differ, frozen
from onnxrewrite.measure.database.machine_class import MachineClass
from onnxrewrite.measure.database.rows import Figures, Question, Row
from onnxrewrite.measure.database.store import Kept, Store
from onnxrewrite.suite import tuning


@pytest.fixture(autouse=True)
def as_in_a_process_of_its_own() -> None:
    store._left_alone.clear()


def machine(folder: Path, machine_class: MachineClass = CLASS) -> Database:
    """A machine whose fingerprint is known."""
    folder.mkdir(exist_ok=True)
    made = Database(Store(folder), HERE)
    made.remember(machine_class.fingerprint)
    return made


class Bench:
    """Measures what it is told to, and counts."""

    def __init__(self, median: float = 0.5):
        self.median, self.runs = median, 0

    def __call__(self) -> Figures:
        self.runs += 1
        return figures(self.median)


def no_time() -> None:
    """Measures nothing: the time for that is up."""


def named(database: Database, *, is_spot: bool) -> Question:
    return next(q for q in (question(f"q{n}") for n in range(1000)) if database.is_spot(q) is is_spot)


def given_row(asked: Question, median: float = 0.5, machine_class: MachineClass = CLASS) -> Row:
    return replace(row(asked.region.removeprefix("region "), median, machine_class))


def test_what_was_measured_here_is_not_measured_again(tmp_path: Path) -> None:
    bench = Bench()
    first, again = (machine(tmp_path).recall(question(), bench) for _ in range(2))
    assert first is not None
    assert again is not None
    assert (first.remembered, again.remembered, bench.runs) == (False, True, 1)
    assert first.ratios == again.ratios


def test_without_time_there_is_no_answer_unless_it_is_known(tmp_path: Path) -> None:
    known = machine(tmp_path)
    assert known.recall(question(), no_time) is None
    known.recall(question(), Bench())
    assert known.recall(question(), no_time) is not None


@pytest.mark.parametrize(("there", "runs"), [(CLASS, 0), (OTHER, 1)])
def test_rows_of_others_count_on_machines_of_their_class(tmp_path: Path, there: MachineClass, runs: int) -> None:
    known, bench = machine(tmp_path), Bench()
    asked = named(known, is_spot=False)
    known.store.add([Kept(given_row(asked, machine_class=there), "key", "{}")])
    found = known.recall(asked, bench)
    assert found is not None
    assert (bench.runs, found.remembered) == (runs, not runs)


def test_one_in_twenty_is_measured_again_and_then_known(tmp_path: Path) -> None:
    known, bench = machine(tmp_path), Bench(0.52)
    asked = named(known, is_spot=True)
    known.store.add([Kept(given_row(asked), "key", "{}")])
    known.recall(asked, bench)
    again = known.recall(asked, bench)
    assert again is not None
    assert again.ratios["after/before"].median == 0.52
    assert bench.runs == 1
    assert known.store.quarantined() == {}
    share = sum(known.is_spot(question(f"q{n}")) for n in range(4000)) / 4000
    assert 0.7 / ONE_IN < share < 1.3 / ONE_IN


def test_who_disagrees_is_put_in_quarantine(tmp_path: Path) -> None:
    known, bench = machine(tmp_path), Bench(2.0)
    spot, other = named(known, is_spot=True), named(known, is_spot=False)
    known.store.add([Kept(given_row(each), "key", "{}") for each in (spot, other)])
    assert known.recall(other, bench) == known.recall(other, no_time)
    assert bench.runs == 0
    known.recall(spot, bench)
    assert bench.runs == 2, "a disagreement is confirmed"
    assert list(known.store.quarantined()) == ["key"]
    assert "0.50 was measured again, twice, and is 2.00 here" in known.notes[0]
    found = known.recall(other, bench)
    assert found is not None
    assert not found.remembered


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_disagreement_is_mutual_and_beyond_the_intervals(a: float, b: float) -> None:
    one, two = figures(a), figures(b)
    assert differ(one, two) == differ(two, one)
    assert differ(one, two) == (max(a, b) * 0.99 > 1.1**2 * 1.01 * min(a, b))
    assert not differ(one, one)


def test_a_file_gives_the_same_answers_everywhere_and_measures_nothing(tmp_path: Path) -> None:
    key, bench = key_in(tmp_path), Bench()
    wide = replace(row("a", 0.7), figures=wider(figures(0.7)))
    path = file_of(tmp_path / "rows.jsonl", key, wide, row("a", 0.5), row("b", 0.9))
    known = frozen(path, [public(key)])
    found = known.recall(question("a"), bench)
    assert found is not None
    assert found.ratios["after/before"].median == 0.5, "the more precise one"
    assert known.recall(question("c"), bench) is None
    assert (bench.runs, known.missing) == (0, "it is not in rows.jsonl")


def wider(found: Figures) -> Figures:
    ratio = found.ratios["after/before"]
    return replace(found, ratios={"after/before": replace(ratio, low=ratio.low * 0.9)})


def test_a_file_of_several_classes_is_refused(tmp_path: Path) -> None:
    key = key_in(tmp_path)
    path = file_of(tmp_path / "rows.jsonl", key, row("a"), row("b", machine_class=OTHER))
    with pytest.raises(UsageError, match="several classes of machines"):
        frozen(path, [public(key)])


def refusals(path: Path, *keys: Path) -> dict[str, int]:
    return dict(exchange.read([path], keys).refused)


def test_tampered_stale_and_foreign_rows_are_refused(tmp_path: Path) -> None:
    key, stranger = key_in(tmp_path), key_in(tmp_path, "stranger")
    path = file_of(tmp_path / "rows.jsonl", key, row("a"), row("b"))
    lines = path.read_text().splitlines()
    told = json.loads(lines[0])
    for change in ("payload", "sig"):
        bad = json.loads(lines[0])
        place = bad if change == "payload" else bad["signatures"][0]
        other = json.loads(lines[1])
        place[change] = other[change] if change == "payload" else other["signatures"][0]["sig"]
        path.write_text(json.dumps(bad) + "\n")
        assert refusals(path, public(key)) == {"tampered with: the signature is not of it": 1}
    path.write_text(json.dumps(told) + "\nno line\n[]\n{}\n")
    assert refusals(path, public(key)) == {"no envelope": 3}
    assert refusals(path, public(stranger)) == {"signed by no key that is named": 1, "no envelope": 3}
    with pytest.raises(UsageError, match="--signed-by"):
        exchange.read([path], [])
    old = replace(row("c"), ort="1.2 long ago")
    stale = replace(row("d"), question=question("d", rules={"gelu-erf": "0" * 64}))
    file_of(path, key, row("a"), old, stale)
    taken = tuning.take([path], [public(key)], store=Store(tmp_path))
    assert (taken.rows, taken.added) == (1, 1)
    assert dict(taken.refused) == {
        "of another build of ONNX Runtime: 1.2 long ago": 1,
        "of another version of the rule gelu-erf": 1,
    }
    file_of(path, key, old)
    with pytest.raises(UsageError, match=r"no row that can be used: 1 of another build"):
        frozen(path, [public(key)])


def test_a_set_of_rows_is_the_same_in_any_order(tmp_path: Path) -> None:
    key, other = key_in(tmp_path), key_in(tmp_path, "other")
    a = file_of(tmp_path / "a", key, row("a"), row("b"))
    b = file_of(tmp_path / "b", other, row("b"), row("c"))
    keys = [public(key), public(other)]
    one = tuning.merge([a, b], keys, tmp_path / "one")
    two = tuning.merge([b, a, b], keys, tmp_path / "two")
    assert one.rows == two.rows == 4
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert tuning.merge([a], keys, tmp_path / "one").added == 0
    assert tuning.merge([a], [public(other)], tmp_path / "new").refused
    with pytest.raises(UsageError, match="would be lost"):
        tuning.merge([a], [public(other)], tmp_path / "one")


def test_what_is_exported_is_imported_and_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "host", lambda: HERE)
    key, here, there = key_in(tmp_path), machine(tmp_path / "here"), machine(tmp_path / "there")
    here.recall(question("a"), Bench())
    here.store.add([Kept(row("b", machine_class=OTHER))])
    path = tmp_path / "rows.jsonl"
    assert tuning.export(path, key, store=here.store, every=True) == 2
    assert tuning.take([path], [public(key)], store=there.store).added == 2
    assert tuning.take([path], [public(key)], store=there.store).added == 0
    assert tuning.take([path], [public(key)], store=here.store).added == 0, "they are its own"
    told = tuning.overview(there.store)["groups"]
    assert sum(each["rows"] for each in told) == 2
    source = told[0]["source"]
    there.store.quarantine(source, "it lies")
    assert tuning.export(path, key, store=there.store, every=True) == 0
    assert tuning.release(source[:8], there.store) == source
    with pytest.raises(UsageError, match="no key begins"):
        tuning.release(source[:8], there.store)
    with pytest.raises(UsageError, match="say what is forgotten"):
        tuning.forget(there.store)
    assert tuning.forget(there.store, stale=True) == 0
    assert tuning.forget(there.store, source=source[:8]) == 2
    assert tuning.overview(there.store)["groups"] == []


def test_a_machine_that_shares_nothing_needs_no_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_class, "fingerprint", pytest.fail)
    here = Database(Store(tmp_path), HERE)
    assert here.recall(question("a"), bench := Bench())
    assert here.recall(question("a"), bench)
    assert bench.runs == 1
    elsewhere = Database(Store(tmp_path), replace(HERE, name="elsewhere"))
    assert elsewhere.recall(question("a"), bench)
    assert bench.runs == 2, "a folder can be shared by machines"


def test_rows_without_a_fingerprint_are_told_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "host", lambda: replace(HERE, name="elsewhere"))
    key, here = key_in(tmp_path), machine(tmp_path / "here")
    here.recall(question("a"), Bench())
    assert tuning.export(tmp_path / "rows", key, store=here.store, every=True) == 0
    bare = exchange.signed(row("b", machine_class=replace(CLASS, fingerprint=None)), signing.private_key(key))
    exchange.write(tmp_path / "rows", [bare], "-o")
    found = exchange.read([tmp_path / "rows"], [public(key)])
    assert found.refused == {"without the fingerprint of a machine": 1}


def test_keys_are_made_once_and_only_for_their_owner(tmp_path: Path) -> None:
    key = key_in(tmp_path)
    assert key.stat().st_mode & 0o077 == 0
    with pytest.raises(UsageError, match="never replaced"):
        key_in(tmp_path)
    with pytest.raises(UsageError, match="is no public key in PEM"):
        exchange.read([], [key])
    with pytest.raises(UsageError, match="cannot be read"):
        exchange.read([], [tmp_path / "none"])


def test_a_fingerprint_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("onnxrewrite.measure.database.machine_class.fingerprint", lambda: asked.append(1) or FAST)
    assert Database(Store(tmp_path), HERE).machine_class == CLASS
    assert Database(Store(tmp_path), HERE).machine_class == CLASS
    assert asked == [1]


def test_nothing_is_answered_that_was_not_asked() -> None:
    assert Frozen({}, "").recall(question(), Bench()) is None


def test_a_decision_holds_as_long_as_the_measurements_that_it_rests_on(tmp_path: Path) -> None:
    first = machine(tmp_path)
    assert first.decision("what") == ""
    first.recall(question(), Bench())
    first.decide("what", "this")
    assert [machine(tmp_path).decision(about) for about in ("what", "else")] == ["this", ""]
    first.store.forget(first.store.rows())
    assert machine(tmp_path).decision("what") == ""
    machine(tmp_path).recall(question(), Bench(0.9))
    assert machine(tmp_path).decision("what") == ""


@pytest.mark.parametrize("told", ["", "[]", "7", '[["a"], "b"]', '[{"a": 1}, "b"]', "{"])
def test_a_decision_that_cannot_be_read_is_none(tmp_path: Path, told: str) -> None:
    found = machine(tmp_path)
    found.store.remember_decisions({found._own("what"): told})
    assert found.decision("what") == ""


def test_a_file_of_rows_holds_no_decisions() -> None:
    rows = Frozen({}, "it is not there")
    rows.decide("what", "this")
    assert rows.decision("what") == ""


def test_what_passed_is_remembered_on_this_machine(tmp_path: Path) -> None:
    machine(tmp_path).keep_passed({"a check": "all is well"})
    assert [machine(tmp_path).passed(check) for check in ("a check", "another")] == ["all is well", ""]
    elsewhere = Database(Store(tmp_path), replace(HERE, name="elsewhere"))
    assert elsewhere.passed("a check") == ""
    machine(tmp_path).store.forget_decisions()
    assert machine(tmp_path).passed("a check") == ""


def test_a_file_of_rows_knows_of_no_checks() -> None:
    rows = Frozen({}, "it is not there")
    rows.keep_passed({"a check": "all is well"})
    assert rows.passed("a check") == ""
