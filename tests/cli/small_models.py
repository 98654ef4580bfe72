"""Small models and rules for the tests of the command line."""

from pathlib import Path

import onnx

GELU = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 8] x) => (float[batch, 8] y)
<float half = {0.5}, float one = {1.0}, float root = {1.41421356}> {
  d = Div(x, root)
  e = Erf(d)
  a = Add(e, one)
  m = Mul(x, a)
  y = Mul(m, half)
}"""

RELU = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 8] x) => (float[batch, 8] y) { y = Relu(x) }"""

WRONG_RULE = '''"""A rule that is wrong: Relu is not Abs."""

from onnxrewrite.rules import Rule, Stage, Var, op

x = Var("x")


def to_abs(m, build):
    """Relu(x) ⟶ Abs(x)."""
    return build.Abs(m[x])


WRONG = Rule(name="relu-is-abs", stage=Stage.CANONICALIZE, pattern=op.Relu(x), rewrite=to_abs)
'''


def write(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), str(path))
    return path
