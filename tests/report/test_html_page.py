"""The page: what is in it, that nothing breaks out of it, that it is whole by itself and always the same."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser

import pytest

import onnxrewrite as rw
from onnxrewrite import io
from onnxrewrite.errors import ModelError
from onnxrewrite.ir import text as texts
from onnxrewrite.report.html import page as pages
from onnxrewrite.report.html.graph_view import Drawing
from onnxrewrite.report.html.markup import digest, escaped, json_script, table, tag
from onnxrewrite.report.html.near_misses import near_misses
from onnxrewrite.report.summary import summary
from onnxrewrite.rules import Operators, Rule, Stage, Var, op

GELU = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 8] x) => (float[batch, 8] y, float[batch, 8] z)
<float half = {0.5}, float one = {1.0}, float root = {1.41421356}, float odd = {1.5}> {
  ["/block/act/Div"] d = Div(x, root)
  ["/block/act/Erf"] e = Erf(d)
  ["/block/act/Add"] a = Add(e, one)
  ["/block/act/Mul"] m = Mul(x, a)
  ["/block/act/Mul_1"] y = Mul(m, half)
  ["/head/Div"] f = Div(y, odd)
  ["/head/Erf"] g = Erf(f)
  ["/head/Add"] b = Add(g, one)
  ["/head/Mul"] n = Mul(y, b)
  ["/head/Mul_1"] z = Mul(n, half)
}"""

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "\"' onload='alert(1)",
    "&lt;b&gt;",
    "{{data}}",
    "\u2028 \u2029 \u202e ünïcödé 模型 \U0001f600",
    "a\\u003cb\\",
    "<img src=x onerror=alert(1)>",
)


class Reader(HTMLParser):
    """Elements and attributes of a page, the text of its scripts, and the text that is read."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.texts, self.inside = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in ("meta", "input", "br", "link", "img"):
            self.inside.append(name)
        if name == "script":
            self.scripts.append("")

    def handle_endtag(self, name):
        assert self.inside.pop() == name, f"</{name}> ends nothing"

    def handle_data(self, text):
        if self.inside and self.inside[-1] == "script":
            self.scripts[-1] += text
        elif self.inside and self.inside[-1] != "style":
            self.texts.append(text)

    @property
    def data(self):
        return json.loads(self.scripts[0])


def parsed(text):
    return io.to_proto(texts.parse(text))


def read(text):
    reader = Reader(text)
    assert reader.inside == []
    return reader


@pytest.fixture(scope="module")
def result():
    return rw.apply(parsed(GELU))


@pytest.fixture(scope="module")
def text(result):
    return pages.page(result, summary(result, model="some/model.onnx", output="out.onnx"))


def named(side):
    return {node[0]: node for node in side["nodes"]}


def test_what_is_read(text):
    seen = " ".join(" ".join(read(text).texts).split())
    assert "model.onnx" in seen
    assert "for onnxruntime-cpu , opset 17 , from some/model.onnx , written to out.onnx" in seen.replace(",", " ,")
    assert "Nodes 10 → 6" in seen
    assert "Every output is" in seen
    assert "gelu-erf" in seen
    assert "expected constant 1.41421, found 1.5" in seen


def test_graphs(text):
    data = read(text).data
    before, after = named(data["before"]), named(data["after"])
    assert len(before) == 10 + 1 + 2
    assert before["x"][1:] == ["", 0, before["x"][3], "input"]
    assert before["/block/act/Erf"][1] == "Erf"
    assert before["/block/act/Erf"][4] == "[/block/act/Erf] e = Erf(d)" or "Erf(d)" in before["/block/act/Erf"][4]
    group = data["before"]["groups"][before["/block/act/Erf"][2]]
    assert (group[0], group[2]) == ("block/act", "block/act")
    pairs = list(zip(data["before"]["edges"][::2], data["before"]["edges"][1::2], strict=True))
    numbers = {node[0]: n for n, node in enumerate(data["before"]["nodes"])}
    assert (numbers["x"], numbers["/block/act/Div"]) in pairs
    assert (numbers["/block/act/Div"], numbers["/block/act/Erf"]) in pairs
    assert (numbers["/head/Mul_1"], numbers["z"]) in pairs
    assert len(pairs) == 14
    fused = after["/block/act/Mul_1"]
    assert (fused[1], fused[3]) == ("com.microsoft.Gelu", -1)


def test_twins_are_each_others(text):
    data = read(text).data
    for one, other in (("before", "after"), ("after", "before")):
        for number, node in enumerate(data[one]["nodes"]):
            if node[3] >= 0:
                twin = data[other]["nodes"][node[3]]
                assert twin[3] == number
                assert twin[:2] == node[:2]
    gone = [n[0] for n in data["before"]["nodes"] if n[3] < 0]
    assert gone == [f"/block/act/{n}" for n in ("Div", "Erf", "Add", "Mul", "Mul_1")]


def test_rewrites_are_linked(text):
    data = read(text).data
    chain = [r for r in data["rewrites"] if r["after"]]
    assert [r["rule"] for r in chain] == ["gelu-erf", "gelu-lower"]
    for each in chain:
        assert [data["before"]["nodes"][n][0] for n in each["before"]] == [
            f"/block/act/{n}" for n in ("Div", "Erf", "Add", "Mul", "Mul_1")
        ]
        assert [data["after"]["nodes"][n][0] for n in each["after"]] == ["/block/act/Mul_1"]
        shown = data["texts"][each["text"]]
        assert any("Gelu" in line for line in shown["after"])
        assert "run" in shown["check"]


def test_near_misses_lead_to_their_nodes(result, text):
    before, after = Drawing.of(result.original), Drawing.of(result.model)
    (near,) = [n for n in near_misses(result, before, after) if n["rule"] == "gelu-erf"]
    ((value, old, new),) = near.pop("places")
    assert (value, before.vertices[old].name, after.vertices[new].name) == ("z", "/head/Mul_1", "/head/Mul_1")
    assert (near["stage"], near["guard"], near["matched"], near["operators"]) == ("raise", False, 4, 4)
    assert near["reason"].startswith("expected constant 1.41421, found 1.5")
    buttons = [a for name, a in read(text).elements if name == "button" and "data-node" in a]
    assert ("after", str(new)) in [(a["data-side"], a["data-node"]) for a in buttons]


def test_nothing_is_fetched(text):
    reader = read(text)
    assert not [a for _, a in reader.elements if {"src", "srcset", "action", "data"} & a.keys()]
    assert [a["href"] for _, a in reader.elements if "href" in a and not a["href"].startswith("#")] == []
    assert not re.search(r"@import|url\((?!#)", text)
    assert "link" not in {name for name, _ in reader.elements}
    (policy,) = [a["content"] for name, a in reader.elements if name == "meta" and "http-equiv" in a]
    assert policy.startswith("default-src 'none'")


def test_the_policy_lets_our_scripts_run_and_no_other(text):
    reader = read(text)
    (policy,) = [a["content"] for name, a in reader.elements if name == "meta" and "http-equiv" in a]
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    run = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in reader.scripts[1:]]
    assert run == allowed
    assert len(run) == 4
    assert digest(reader.scripts[1]) == f"'sha256-{run[0]}'"


def test_same_bytes(result):
    once, again = (pages.page(r, summary(r)) for r in (result, rw.apply(parsed(GELU))))
    assert once == again


def hostile_model():
    model = parsed(GELU)
    for number, node in enumerate(model.graph.node):
        node.name = f"/{HOSTILE[number % len(HOSTILE)].replace('/', '∕')}/{HOSTILE[(number + 1) % len(HOSTILE)]}"
        entry = node.metadata_props.add()
        entry.key, entry.value = "pkg.torch.onnx.name_scopes", str(["", HOSTILE[number % len(HOSTILE)], "n"])
    renamed = {v: f"{HOSTILE[n % len(HOSTILE)]}{n}" for n, v in enumerate("xdeamyfgbnz")}
    for node in model.graph.node:
        for kind in (node.input, node.output):
            kind[:] = [renamed.get(name, name) for name in kind]
    for value in (*model.graph.input, *model.graph.output):
        value.name = renamed[value.name]
    model.graph.name = HOSTILE[0]
    return model


@pytest.fixture(scope="module")
def hostile():
    result = rw.apply(hostile_model())
    data = summary(result, model=f"{HOSTILE[0]}/{HOSTILE[3]}.onnx", output=HOSTILE[1])
    return pages.page(result, data)


def test_no_name_breaks_out(hostile, text):
    found, plain = read(hostile), read(text)
    assert len(found.scripts) == len(plain.scripts) == 5
    assert found.scripts[1:] == plain.scripts[1:]
    kinds = {name for name, _ in plain.elements}
    assert {name for name, _ in found.elements} <= kinds
    allowed = {key for _, a in plain.elements for key in a}
    assert {key for _, a in found.elements for key in a} <= allowed
    assert not any(key.startswith("on") for _, a in found.elements for key in a)
    assert "</script><script>alert" not in hostile
    assert "<img" not in hostile


def test_names_are_as_they_were(hostile):
    data = read(hostile).data
    names = {node[0] for node in data["before"]["nodes"]}
    model = hostile_model()
    assert {n.name for n in model.graph.node} <= names
    assert any("{{data}}" in node[0] for node in data["before"]["nodes"])


def test_escaping():
    assert escaped('<a href="x">\'&') == "&lt;a href=&quot;x&quot;&gt;&#x27;&amp;"
    assert escaped("\ud800") == "?"
    assert tag("b", "<", tag("i", ">"), class_='a"b', data_node=3, id=None) == (
        '<b class="a&quot;b" data-node="3">&lt;<i>&gt;</i></b>'
    )
    assert "<td>&lt;td&gt;</td>" in table(["a", "n>"], [["<td>", 1]])
    script = json_script("data", {"</script>": ["<!--", "\ud800", "&"]})
    inner = re.fullmatch(r'<script type="application/json" id="data">(.*)</script>', script)[1]
    assert not set("<>&") & set(inner)
    assert json.loads(inner) == {"</script>": ["<!--", "\ud800", "&"]}
    with pytest.raises(ValueError, match="JSON"):
        json_script("data", float("nan"))


def test_nothing_applied():
    result = rw.apply(parsed('<ir_version: 8, opset_import: ["": 17]>\ng (float[2] x) => (float[2] y) { y = Relu(x) }'))
    text = pages.page(result, summary(result))
    seen = " ".join(read(text).texts)
    assert "No rule applied" in html.unescape(text)
    assert "bit by bit" in seen
    assert [n[1] for n in read(text).data["after"]["nodes"]] == ["", "Relu", ""]


def test_what_was_undone_is_seen():
    x = rw.rules.Var("x")
    wrong = rw.rules.Rule(
        "relu-is-abs", rw.rules.Stage.CANONICALIZE, rw.rules.op.Relu(x), lambda m, build: build.Abs(m[x])
    )
    result = rw.apply(
        parsed('<ir_version: 8, opset_import: ["": 17]>\ng (float[2] x) => (float[2] y) { y = Relu(x) }'), rules=[wrong]
    )
    seen = " ".join(" ".join(read(pages.page(result, summary(result))).texts).split())
    assert "1 rewrite that a check turned down was undone." in seen
    assert "rule applied refused undone relu-is-abs – – 1" in seen
    assert "Undone relu-is-abs at `y`:" in seen


def test_unchecked():
    result = rw.apply(parsed(GELU), check="off")
    text = pages.page(result, summary(result))
    assert "The numbers were not checked" in text
    assert {t["check"] for t in read(text).data["texts"]} == {"not run: --check off"}


def test_many_inputs_are_one_box():
    names = ", ".join(f"float[2] x{i}" for i in range(8))
    lines = "  ".join(f'["/block/r{i}"] y{i} = Relu(x{i})' for i in range(7))
    outputs = ", ".join(f"float[2] y{i}" for i in range(7))
    model = parsed(f'<ir_version: 8, opset_import: ["": 17]>\ng ({names}) => ({outputs}) {{ {lines} }}')
    result = rw.apply(model, check="off")
    side = read(pages.page(result, summary(result))).data["before"]
    assert [g[0] for g in side["groups"]] == ["", "model inputs", "model outputs"]
    assert [side["groups"][n[2]][0] for n in side["nodes"] if n[0] in ("x7", "y0", "/block/r0")] == [
        "model inputs", "", "model outputs",
    ]  # fmt: skip


SUBGRAPHS = """<ir_version: 8, opset_import: ["": 17, "local": 1]>
g (float[2] x, bool c) => (float[2] y) {
  k = Constant<value = float {2.0}>()
  ["/top/If"] t = If (c) <then_branch = a () => (float[2] p) { ["/in/Relu"] p = Relu(x) },
                          else_branch = b () => (float[2] q) { q = Abs(x)  }>
  m = Mul(t, k)
  y = local.twice(m)
}
<domain: "local", opset_import: ["": 17]> twice (v) => (r) { r = Add(v, v) }"""


def test_subgraphs_and_functions():
    twice = Rule("names-twice", Stage.RAISE, Operators("local").twice(op.Neg(Var("x"))), lambda m, build: None)
    result = rw.apply(parsed(SUBGRAPHS), check="off", rules=[twice], only=["identity", "names-twice"])  # not inlined
    data = read(pages.page(result, summary(result))).data
    side = data["before"]
    operators = [node[1] for node in side["nodes"]]
    assert sorted(operators) == ["", "", "", "Abs", "Add", "If", "Mul", "Relu", "local.twice"]
    at = {operator: n for n, operator in enumerate(operators) if operator}
    pairs = set(zip(side["edges"][::2], side["edges"][1::2], strict=True))
    assert {(0, at["Relu"]), (at["Relu"], at["If"]), (at["Abs"], at["If"]), (at["If"], at["Mul"])} <= pairs
    assert all(node[3] >= 0 for node in side["nodes"])


def test_written_whole_or_not_at_all(result, tmp_path):
    result.report(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == pages.page(result, summary(result))
    with pytest.raises(ModelError, match=r"report .*b\.html: cannot be written"):
        result.report(tmp_path / "no" / "b.html")
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read(text, theme):
    """The contrast that WCAG 2.1 asks of text at level AA."""
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", text)
    colours = {name: luminance(pair[theme]) for name, *pair in found}
    for ink, grounds in (
        ("ink", ("ground", "card", "group", "gone-tint", "made-tint")),
        ("soft", ("ground", "card", "group")),
        ("link", ("ground", "card")),
        ("good", ("good-tint",)),
        ("warning", ("warning-tint", "ground")),
    ):
        for ground in grounds:
            high, low = sorted((colours[ink], colours[ground]), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, f"{ink} on {ground}"
