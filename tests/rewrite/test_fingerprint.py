"""The digest of a rule: it changes with what the rule is, and with nothing else."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.fingerprint import fingerprint
from onnxrewrite.rules import FLOATS, AnyNode, Attr, Each, Rule, Stage, Var, any_of, op

ROOT = Path(__file__).resolve().parents[2]
x, y = Var("x"), Var("y")


def keep(m: Any, build: Any) -> Any:
    return m[x]


def other(m: Any, build: Any) -> Any:
    return m[x]


def always(node: Any, facts: Any) -> bool:
    return True


RELU = op.Relu(x)


def rule(pattern: Any = RELU, rewrite: Any = keep, **settings: Any) -> Rule:
    return Rule(settings.pop("name", "a-rule"), settings.pop("stage", Stage.RAISE), pattern, rewrite, **settings)


def close_over(value: Any) -> Callable[..., Any]:
    return lambda m, build: value


VARIANTS: dict[str, Rule] = {
    "name": rule(name="b-rule"),
    "stage": rule(stage=Stage.LOWER),
    "benefit": rule(benefit=1),
    "before": rule(before=("another",)),
    "allow_shared": rule(allow_shared=True),
    "operator": rule(op.Abs(x)),
    "number": rule(op.Relu(x) * 2),
    "another number": rule(op.Relu(x) * 2.0000001),
    "dtype": rule(op.Relu(Var("x", dtype=FLOATS))),
    "rank": rule(op.Relu(Var("x", rank=2))),
    "attribute": rule(op.LeakyRelu(x, alpha=Attr[float]("alpha"))),
    "default": rule(op.LeakyRelu(x, alpha=Attr[float]("alpha", default=1.0))),
    "the same value twice": rule(op.Add(x, x)),
    "two values": rule(op.Add(x, y)),
    "a value of the same name": rule(op.Add(x, Var("x"))),
    "alternatives": rule(any_of(op.Relu(x), op.Abs(x))),
    "the other order": rule(any_of(op.Abs(x), op.Relu(x))),
    "the rest": rule(op.Sum(x, Each("rest"))),
    "any node": rule(AnyNode("n", op_types=["Relu"])),
    "any node that": rule(AnyNode("n", always, ["Relu"])),
    "function": rule(rewrite=other),
    "partial": rule(rewrite=functools.partial(keep, 1)),
    "another partial": rule(rewrite=functools.partial(keep, 2)),
    "closure": rule(rewrite=close_over(np.float32(1))),
    "another closure": rule(rewrite=close_over(np.float32(2))),
}


def test_every_setting_counts() -> None:
    digests = {name: fingerprint(each).sha256 for name, each in {"": rule(), **VARIANTS}.items()}
    assert len(set(digests.values())) == len(digests)
    assert fingerprint(rule()).sha256 == digests[""], "two rules that are the same have one digest"


def test_modules_of_the_library() -> None:
    library = registry.load(plugins=False)
    assert list(fingerprint(library.rules["gelu-erf"]).modules) == ["onnxrewrite_patterns.gelu"]
    found = fingerprint(library.rules["batchnorm-into-layer"]).modules
    assert set(found) == {"onnxrewrite_patterns.conv_batchnorm", "onnxrewrite_patterns.linear_layers"}


@pytest.mark.slow
def test_the_same_in_every_process() -> None:
    script = (
        "from onnxrewrite.rewrite import registry, fingerprint as f\n"
        "print([f.fingerprint(r).sha256 for r in registry.load(plugins=False)])"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "patterns")])
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]


# ------------------------------------------------------------------------------------------------- modules

FILES = {
    "__init__.py": "",
    "rules.py": "from onnxrewrite.rules import Rule, Stage, Var, op\nfrom .parts import (\n    helper,\n)\nimport my_pack.plain\n"
    'x = Var("x")\ndef f(m, build):\n    from my_pack.late import LATE\n    return m[x]\n'
    'R = Rule("r", Stage.RAISE, op.Relu(x), f)\n',
    "parts/__init__.py": "",
    "parts/helper.py": "from ..far import FAR\n",
    "far.py": "FAR = 1\n",
    "plain.py": "",
    "late.py": "LATE = 1\n",
    "unrelated.py": "",
}


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """Imports ``my_pack.rules`` anew, with files changed."""
    monkeypatch.syspath_prepend(tmp_path)  # type: ignore[no-untyped-call]

    def forget() -> None:
        for name in [n for n in sys.modules if n.partition(".")[0] == "my_pack"]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def load(**changes: str) -> ModuleType:
        forget()
        for name, content in {**FILES, **changes}.items():
            path = tmp_path / "my_pack" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        for name in ("late", "unrelated"):
            importlib.import_module(f"my_pack.{name}")
        return importlib.import_module("my_pack.rules")

    yield load
    forget()


def test_what_a_module_imports_at_any_distance(loaded: Callable[..., ModuleType]) -> None:
    before = fingerprint(loaded().R)
    names = {"my_pack.rules", "my_pack.parts.helper", "my_pack.far", "my_pack.plain", "my_pack.late"}
    assert set(before.modules) == names
    assert fingerprint(loaded(**{"unrelated.py": "X = 1\n"}).R) == before
    for name in sorted(names):
        file = f"{name.removeprefix('my_pack.').replace('.', '/')}.py"
        after = fingerprint(loaded(**{file: FILES[file] + "# edited\n"}).R)
        assert after.sha256 != before.sha256
        assert [n for n in names if after.modules[n] != before.modules[n]] == [name]


def test_a_file_is_the_same_wherever_it_lies(tmp_path: Path) -> None:
    digests = []
    for folder in ("a", "b"):
        path = tmp_path / folder / "my_rule.py"
        path.parent.mkdir()
        path.write_text(FILES["rules.py"].replace("from .parts import (\n    helper,\n)\nimport my_pack.plain\n", ""))
        (made,) = registry.rules_of(registry.load_module(str(path)))
        digests.append(fingerprint(made))
    assert digests[0] == digests[1]
    assert list(digests[0].modules) == ["my_rule.py"]
