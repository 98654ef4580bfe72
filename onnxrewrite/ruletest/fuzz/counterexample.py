"""A counterexample on disk: the model, the inputs, and a test that fails until the rule is right."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from onnxrewrite import io
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.ruletest.fuzz.verdict import Counterexample
from onnxrewrite.system import temporary
from onnxrewrite.system.arrays import npz_bytes

MODEL, INPUTS = "model.onnx", "inputs.npz"

_TEST = '''"""{rule} rewrites `{model}` wrongly: {reason}

Written by `onnxrewrite verify`.  It fails until the rule is right, or refuses this model.
"""

from pathlib import Path

from onnxrewrite.testing import check_counterexample


def test_{name}() -> None:
    check_counterexample(Path(__file__).parent, {rule!r}, rules={rules!r}, target={target!r})
'''


def save(found: Counterexample, rule: Rule, folder: Path, rules: tuple[str, ...] = ()) -> Path:
    """Write ``model.onnx``, ``inputs.npz`` and a test into ``folder``, which is made; the test's path.

    ``rules``: files or packages that the rule comes from, if it is not the library's or an installed plugin's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    io.save(found.before.clone(), folder / MODEL)
    arrays = {name: np.asarray(value) for name, value in (found.feeds or {}).items()}
    texts = {name: value.astype(str) for name, value in arrays.items() if value.dtype.hasobject}
    with temporary.beside(folder / INPUTS) as made:
        made.write_bytes(npz_bytes(arrays | texts))
        made.replace(folder / INPUTS)
    name = re.sub(r"\W", "_", rule.name)
    test = folder / f"test_{name}.py"
    reason = " ".join(found.reason.split())
    test.write_text(
        _TEST.format(rule=rule.name, model=MODEL, reason=reason, name=name, rules=rules, target=found.target),
        encoding="utf-8",
    )
    return test
