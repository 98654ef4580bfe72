"""The page in a real browser: no errors, drawn at once, and it does what it says when somebody clicks."""

import json

import pytest
from chromium import browser, installed
from test_html_page import GELU, hostile_model, parsed

import onnxrewrite as rw
from onnxrewrite.report.html import page as pages
from onnxrewrite.report.summary import summary

pytestmark = [
    pytest.mark.skipif(installed() is None, reason="no Chromium on PATH: apt-get install chromium"),
    pytest.mark.xdist_group("chromium"),  # one browser for all
]


@pytest.fixture(scope="module")
def chromium():
    with browser(installed()) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


def written(folder, name, model, **options):
    result = rw.apply(model, **options)
    path = folder / f"{name}.html"
    path.write_text(pages.page(result, summary(result, model=f"{name}.onnx")), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def small(folder):
    return written(folder, "small", parsed(GELU))


def layers(count, width):
    """A model of layers, each of which has ``width`` nodes, and one GELU."""
    lines, value = [], "x"
    for layer in range(count):
        at = f"/encoder/layer.{layer}"
        for step in range(width - 5):
            lines.append(f'["{at}/mlp/Tanh_{step}"] v{layer}_{step} = Tanh({value})')
            value = f"v{layer}_{step}"
        for name, out, call in (
            ("Div", "d", f"Div({value}, root)"),
            ("Erf", "e", f"Erf(d{layer})"),
            ("Add", "a", f"Add(e{layer}, one)"),
            ("Mul", "m", f"Mul({value}, a{layer})"),
            ("Mul_1", "g", f"Mul(m{layer}, half)"),
        ):
            lines.append(f'["{at}/act/{name}"] {out}{layer} = {call}')
        value = f"g{layer}"
    head = """<ir_version: 8, opset_import: ["": 17]>
    g (float[batch, 8] x) => (float[batch, 8] y) <float half = {0.5}, float one = {1.0}, float root = {1.41421356}>"""
    return parsed(f"{head} {{ {chr(10).join(lines)} y = Identity({value}) }}")


@pytest.fixture(scope="module")
def deep(folder):
    return written(folder, "deep", layers(50, 9), check="off", only=["gelu-erf", "gelu-lower"])


@pytest.fixture(scope="module")
def large(folder):
    return written(folder, "large", layers(100, 50), check="off", only=["gelu-erf", "gelu-lower"])


def labels(chromium, side, kind="*"):
    return chromium.run(
        f"[...document.querySelectorAll('#{side} .front > {kind}')].map((e) => e.querySelector('text').textContent)"
    )


def chosen(chromium, side):
    return chromium.run(
        f"[...document.querySelectorAll('#{side} .box.chosen title')].map((e) => e.textContent.split('\\n')[0])"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_opens_without_errors(chromium, small, tmp_path, width, scheme):
    chromium.open(small, width=width, scheme=scheme)
    assert chromium.errors == []
    assert chromium.fetched == [small.resolve().as_uri()]
    assert chromium.picture(tmp_path / "shot.png", whole=True).stat().st_size > 10_000
    wide = chromium.run("document.documentElement.scrollWidth")
    assert wide <= width
    ground = chromium.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))) < 380) == (scheme == "dark")


def test_a_small_model_is_shown_whole(chromium, small):
    chromium.open(small)
    assert sorted(labels(chromium, "before", ".box")) == sorted(
        ["x", "y", "z", *2 * ["Div", "Erf", "Add", "Mul", "Mul"]]
    )
    assert "Gelu" in labels(chromium, "after", ".changed")
    assert chromium.run("document.querySelectorAll('#before .edges path').length") >= 14


def test_a_rewrite_is_shown_on_both_sides(chromium, small):
    chromium.open(small)
    chromium.click("#rewrites details[data-rule='gelu-erf'] summary")
    chromium.wait("document.querySelector(\"#rewrites details[data-rule='gelu-erf'] button\")")
    chromium.click("#rewrites details[data-rule='gelu-erf'] button")
    assert chosen(chromium, "before") == [f"/block/act/{n}" for n in ("Div", "Erf", "Add", "Mul", "Mul_1")]
    assert chosen(chromium, "after") == ["/block/act/Mul_1"]
    told = chromium.run("document.getElementById('details').textContent")
    assert "gelu-erf" in told
    assert "Erf(" in told
    assert "Gelu(" in told
    assert chromium.errors == []


def test_a_node_leads_to_what_became_of_it(chromium, small):
    chromium.open(small)
    chromium.click("#before [aria-label='Erf: /block/act/Erf']")
    assert chosen(chromium, "after") == ["/block/act/Mul_1"]
    assert "replaced" in chromium.run("document.getElementById('details').textContent")
    chromium.click("#after [aria-label='Erf: /head/Erf']")
    assert chosen(chromium, "before") == ["/head/Erf"]
    assert "on both sides" in chromium.run("document.getElementById('details').textContent")
    chromium.press("Escape")
    assert chosen(chromium, "before") == chosen(chromium, "after") == []


def test_groups_open_and_close_on_both_sides(chromium, small):
    chromium.open(small)
    chromium.click("#collapse")
    assert sorted(labels(chromium, "before")) == ["block/act", "head", "x", "y", "z"]
    chromium.click("#before [aria-label$=': head']")
    assert labels(chromium, "after", ".box").count("Erf") == 1
    chromium.run("document.activeElement.matches('[data-box]')")
    chromium.press("Enter")
    assert "Erf" not in labels(chromium, "before")
    chromium.click("#expand")
    assert labels(chromium, "before").count("Erf") == 2


def test_search_opens_and_goes_there(chromium, deep):
    chromium.open(deep)
    assert not [name for name in labels(chromium, "before") if name == "Erf"]
    chromium.click("#search")
    chromium.type("layer.47 erf")
    assert chromium.run("[...document.querySelectorAll('#hits li')].map((e) => e.textContent)") == [
        "Erf /encoder/layer.47/act/Erf before"
    ]
    chromium.press("Enter")
    assert "/encoder/layer.47/act/Erf" in chosen(chromium, "before")
    assert chosen(chromium, "after") == ["/encoder/layer.47/act/Mul_1"]
    middle = chromium.run(
        "(() => { const r = document.querySelector('#before .chosen').getBoundingClientRect();"
        "const f = document.querySelector('#before svg').getBoundingClientRect();"
        "return r.x > f.x && r.right < f.right && r.y > f.y && r.bottom < f.bottom })()"
    )
    assert middle is True
    chromium.click("#search")
    chromium.run("document.getElementById('search').value = ''")
    chromium.type("no such node")
    assert "No node has such a name" in chromium.run("document.getElementById('hits').textContent")
    assert chromium.errors == []


@pytest.mark.slow
def test_five_thousand_nodes_are_drawn_at_once(chromium, large):
    took = []
    for _ in range(3):  # the machine may be busy
        chromium.open(large)
        took.append(chromium.run("Number(document.documentElement.dataset.drawn)"))
    assert min(took) < 2000
    assert chromium.run("document.querySelector('#before figcaption').textContent") == "Before5001 nodes"
    assert len(labels(chromium, "before")) < 120
    assert chromium.errors == []


def test_rules_of_the_table_lead_to_the_graph(chromium, deep):
    chromium.open(deep)
    chromium.click("button[data-rule='gelu-erf']")
    assert chromium.run("document.querySelector('#rewrites details[open]').dataset.rule") == "gelu-erf"
    assert chosen(chromium, "after")
    assert chromium.errors == []


def test_hostile_names(chromium, folder):
    chromium.open(written(folder, "hostile", hostile_model()))
    assert chromium.errors == []
    chromium.click("#expand")
    for side in ("before", "after"):
        count = chromium.run(f"document.querySelectorAll('#{side} .box').length")
        for number in range(count):
            chromium.run(
                f"document.querySelectorAll('#{side} .box')[{number}].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
            )
    assert chromium.run("document.querySelectorAll('img, iframe, script').length") == 5
    assert chromium.errors == []
    names = {n.name for n in hostile_model().graph.node}
    shown = chromium.run("[...document.querySelectorAll('#before .box title')].map((e) => e.textContent)")
    assert names <= {json.loads(json.dumps(title)).rpartition("\n")[0] for title in shown}


def test_theme_can_be_turned(chromium, small):
    chromium.open(small, scheme="dark")
    assert chromium.run("document.getElementById('theme').textContent") == "Light"
    chromium.click("#theme")
    assert chromium.run("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 250)"


def test_nothing_to_draw(chromium, folder):
    model = parsed('<ir_version: 8, opset_import: ["": 17]>\ng (float[2] x) => (float[2] x2) { x2 = Identity(x) }')
    chromium.open(written(folder, "nothing", model))
    assert chromium.errors == []
    assert labels(chromium, "before")
