"""A pipeline as a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxrewrite.errors import UsageError
from onnxrewrite.suite.deploy.config import parse, read
from onnxrewrite.suite.deploy.stages.rewrite_stage import Rewrite
from onnxrewrite.suite.deploy.stages.session_stage import Session


def test_everything_at_its_place(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        'target-speedup = 2\nmax-drop = 0.01\nmin-snr = 20\ndata = "a.npz"\nmetric = "mine.py:accuracy"\n'
        'stages = ["session", "rewrite"]\ndims = {batch = 4}\n'
        '[rewrite]\nlower = "fused"\nonly = ["gelu"]\nrequired = true\n'
    )
    plan = read(file)
    assert plan.stages == [Session(), Rewrite(lower="fused", only=("gelu",), required=True)]
    assert (plan.target_speedup, plan.gate.max_drop, plan.gate.min_snr) == (2.0, 0.01, 20.0)
    assert plan.dims == {"batch": 4}
    assert plan.data == str(tmp_path / "a.npz")
    assert plan.metric == f"{tmp_path / 'mine.py'}:accuracy"


def test_an_empty_one_is_all_stages() -> None:
    assert [s.name for s in parse({}).stages][:1] == ["rewrite"]


def test_a_module_stays_a_module(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('data = "package.module:samples"')
    assert read(tmp_path / "p.toml").data == "package.module:samples"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("target-speedup = [", "is no TOML"),
        ("max-dropp = 1", "there is no setting 'max_dropp'; did you mean max_drop"),
        ('max-drop = "much"', "max_drop: input should be a valid number"),
        ("samples = 1.5", "samples: input should be a valid integer, not 1.5"),
        ('stages = "rewrite"', "stages: write a list of names"),
        ('stages = ["rewrit"]', "no stage is called 'rewrit'; did you mean rewrite"),
        ("[rewrit]", "no stage is called 'rewrit'; did you mean rewrite"),
        ('stages = ["session"]\n[rewrite]', "[rewrite] is set, but stages leaves it out"),
        ("[rewrite]\nlowest = 1", "stage rewrite has no setting 'lowest'; it has"),
        ('[rewrite]\nlower = "slow"', "stage rewrite, lower: input should be 'fastest', 'fused' or 'portable'"),
        ("[rewrite]\nonly = [1]", "stage rewrite, only.0: input should be a valid string"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        read(tmp_path / "p.toml")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"--config {tmp_path / 'p.toml'}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="No such file"):
        read("nowhere.toml")
