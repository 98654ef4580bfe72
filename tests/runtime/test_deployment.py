"""Options of a session as a value: what is stored comes back, and nothing that is stored does harm."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import onnxrewrite as rw
from onnxrewrite.errors import ModelError, UsageError
from onnxrewrite.runtime.deployment import SESSION_KEY, Deployment, options_for, read_options, write_options
from onnxrewrite.runtime.providers import PROVIDERS, may_travel

FULL = Deployment(
    level="extended",
    threads=2,
    inter_threads=1,
    mode="parallel",
    providers={"CUDAExecutionProvider": {"device_id": "1"}, "CPUExecutionProvider": {}},
    spinning=False,
    entries={"session.dynamic_block_base": "4"},
    dims={"batch": 1},
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with weights beside it, metadata, and a dimension by name."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 64]) for n in "xy"]
    weight = numpy_helper.from_array(np.eye(64, dtype=np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made.metadata_props.add(key="author", value="somebody")
    path = tmp_path / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def refused(data: Any) -> tuple[Deployment, list[str]]:
    said: list[str] = []
    return Deployment.from_json(data, said.append), said


def test_what_is_said_comes_back() -> None:
    assert Deployment.parse(FULL.text(), pytest.fail) == FULL
    assert json.loads(FULL.text()) == FULL.to_json()
    assert Deployment().to_json() == {}
    assert list(FULL.to_json()["providers"][0].values()) == ["CUDAExecutionProvider", {"device_id": "1"}]


counts = st.none() | st.integers(0, 4096)
texts = st.dictionaries(st.text(), st.text(), max_size=3)


@given(
    st.builds(
        Deployment,
        level=st.sampled_from([None, "disabled", "basic", "extended", "all"]),
        threads=counts,
        inter_threads=counts,
        mode=st.sampled_from([None, "sequential", "parallel"]),
        providers=st.dictionaries(st.text(), texts, max_size=3),
        spinning=st.none() | st.booleans(),
        entries=texts,
        dims=st.dictionaries(st.text(), st.integers(1, 2**62), max_size=3),
    )
)
def test_anything_that_can_be_said_comes_back_in_its_order(options: Deployment) -> None:
    again = Deployment.parse(options.text(), pytest.fail)
    assert again == options
    assert list(again.providers) == list(options.providers)
    assert options.overruled_by(Deployment()) == options
    assert Deployment().overruled_by(options) == options


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda s: (
            st.lists(s)
            | st.dictionaries(
                st.sampled_from(["level", "threads", "providers", "entries", "dims", "spinning", "mode", "x"])
                | st.text(),
                s,
            )
        ),
    )
)
@pytest.mark.slow
def test_rubbish_never_raises(data: Any) -> None:
    found, _ = refused(data)
    assert Deployment.parse(found.text(), pytest.fail) == found


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ([], "are list, not an object"),
        ({"colour": "red"}, "colour is unknown"),
        ({"level": "most"}, "level must be one of disabled, basic, extended, all, not 'most'"),
        ({"threads": -1}, "threads must be a number from 0 to 4096, not -1"),
        ({"threads": True}, "threads must be a number"),
        ({"threads": 1e9}, "threads must be a number"),
        ({"mode": 1}, "mode must be one of"),
        ({"spinning": "yes"}, "spinning must be true or false, not 'yes'"),
        ({"entries": {"a": 1}}, "entries must map names to texts"),
        ({"dims": {"batch": 0}}, "dims must map names to positive numbers"),
        ({"providers": "cpu"}, "providers must map names of providers"),
        ({"providers": [1]}, "providers must map"),
        ({"providers": [{"options": {}}]}, "providers must map"),
    ],
)
def test_what_is_damaged_is_left_out_with_a_word(data: Any, line: str) -> None:
    found, said = refused({"inter_threads": 3, **data} if isinstance(data, dict) else data)
    assert len(said) == 1
    assert line in said[0]
    assert found == (Deployment(inter_threads=3) if isinstance(data, dict) else Deployment())


def test_a_mistake_in_code_is_an_error() -> None:
    with pytest.raises(UsageError, match="level of a deployment must be one of"):
        Deployment(level="fast")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="level of a deployment"):
        options_for("??")


def test_a_list_of_names_is_enough() -> None:
    assert refused({"providers": ["cuda", "cpu"]}) == (Deployment(providers={"cuda": {}, "cpu": {}}), [])


def test_what_is_said_later_wins_one_by_one() -> None:
    both = FULL.overruled_by(Deployment(level="basic", entries={"session.force_spinning_stop": "1"}, spinning=True))
    assert (both.level, both.threads, both.spinning) == ("basic", 2, True)
    assert both.entries == {"session.dynamic_block_base": "4", "session.force_spinning_stop": "1"}
    assert FULL.overruled_by(Deployment(threads=0)).threads == 0


def test_a_level_is_stored_beside_the_rest() -> None:
    assert options_for("basic") == '{"level": "basic"}'
    assert Deployment.parse(options_for("basic", FULL.text())) == FULL.overruled_by(Deployment(level="basic"))
    assert options_for("basic", "rubbish") == options_for("basic")


def test_a_model_cannot_make_us_touch_files() -> None:
    said: list[str] = []
    sly = Deployment(
        entries={"session.optimized_model_filepath": "x.onnx", "session.dynamic_block_base": "4"},
        providers={
            "TensorrtExecutionProvider": {"trt_extra_plugin_lib_paths": "evil.so", "trt_fp16_enable": "1"},
            "QNNExecutionProvider": {"backend_path": "evil.so"},
            "tensorrt": {"trt_engine_cache_path": "/", "trt_fp16_enable": "1"},
            "cuda": {"gpu_external_alloc": "1234"},
            "unheard of": {"a": "b"},
        },
    )
    kept = sly.harmless(said.append)
    assert kept.entries == {"session.dynamic_block_base": "4"}
    assert {name: dict(own) for name, own in kept.providers.items()} == {
        "TensorrtExecutionProvider": {"trt_fp16_enable": "1"},
        "QNNExecutionProvider": {},
        "tensorrt": {"trt_fp16_enable": "1"},
        "cuda": {},
        "unheard of": {},
    }
    assert len(said) == 6
    assert FULL.harmless(pytest.fail) == FULL


def test_options_that_sound_like_files_do_not_travel() -> None:
    words = r"path|folder|librar|^load_config|_dir|Directory|(?<!pro)file"
    sound = [(p.name, o) for p in PROVIDERS.values() for o, what in p.options if re.search(words, f"{o} {what}")]
    assert len(sound) >= 8
    assert [each for each in sound if may_travel(*each)] == []


def test_options_are_stored_in_a_file_and_nothing_else_changes(model: Path) -> None:
    before, weights = onnx.load(model), (model.parent / "weights.bin").stat()
    write_options(model, FULL)
    write_options(model, FULL)
    assert read_options(model) == FULL
    after = onnx.load(model)
    assert [(p.key, p.value) for p in after.metadata_props] == [("author", "somebody"), (SESSION_KEY, FULL.text())]
    assert (model.parent / "weights.bin").stat() == weights
    assert sorted(p.name for p in model.parent.iterdir()) == ["model.onnx", "weights.bin"]
    write_options(model, Deployment())
    assert onnx.load(model) == before


def test_a_link_stays_a_link(model: Path) -> None:
    link = model.parent / "latest.onnx"
    link.symlink_to(model.name)
    write_options(link, FULL)
    assert link.is_symlink()
    assert read_options(model) == FULL


def test_options_outlive_rewriting(model: Path, tmp_path: Path) -> None:
    write_options(model, FULL)
    rw.apply(model, lower="fused").save(tmp_path / "out.onnx")
    assert read_options(tmp_path / "out.onnx") == FULL


@pytest.mark.parametrize("use", [read_options, lambda path: write_options(path, FULL)], ids=["read", "write"])
def test_what_is_no_model_is_one_line(tmp_path: Path, use: Callable[[Path], Any]) -> None:
    (tmp_path / "text.onnx").write_text("this is text", encoding="utf-8")
    for name, line in (("none.onnx", "no such file"), ("text.onnx", "is a text file"), (".", "is a folder")):
        with pytest.raises(ModelError, match=line):
            use(tmp_path / name)
    assert (tmp_path / "text.onnx").read_text(encoding="utf-8") == "this is text"


def test_a_file_that_cannot_be_written_stays(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = model.read_bytes()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("onnxrewrite.io.models.os.fsync", full)
    with pytest.raises(ModelError, match="cannot be written: No space left on device; nothing was changed"):
        write_options(model, FULL)
    assert model.read_bytes() == before
    assert sorted(p.name for p in model.parent.iterdir()) == ["model.onnx", "weights.bin"]
