"""The page of ``optimize`` in a real browser: no errors, nothing beside the window, whole without scripts."""

import pytest
from chromium import browser, installed
from optimized import nothing_gained, report
from test_deployment_page import hostile

from onnxrewrite.report.html.deploy_page import deployment_page

pytestmark = [
    pytest.mark.skipif(installed() is None, reason="no Chromium on PATH: apt-get install chromium"),
    pytest.mark.xdist_group("chromium"),  # one browser for all
]

PAGES = {"gained": report, "nothing": nothing_gained, "hostile": hostile}


@pytest.fixture(scope="module")
def chromium():
    with browser(installed()) as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("pages")
    for name, data in PAGES.items():
        (made / f"{name}.html").write_text(deployment_page(data()), encoding="utf-8")
    return made


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_opens_and_fits(chromium, folder, name, width, scheme):
    chromium.open(folder / f"{name}.html", width=width, scheme=scheme)
    chromium.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert chromium.errors == []
    assert len(chromium.fetched) == 1
    assert chromium.run("document.documentElement.scrollWidth") <= width


def test_nothing_is_written_outside_of_its_chart(chromium, folder):
    for width in (1400, 400):
        chromium.open(folder / "gained.html", width=width)
        outside = chromium.run(
            "[...document.querySelectorAll('svg text')].filter((e) => {"
            "const r = e.getBoundingClientRect(); return r.left < 0 || r.right > innerWidth }).map((e) => e.textContent)"
        )
        assert outside == []


def test_the_program_is_copied(chromium, folder):
    chromium.open(folder / "gained.html")
    assert chromium.run("getComputedStyle(document.querySelector('[data-copy]')).display") != "none"
    chromium.run("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    chromium.click("[data-copy]")
    chromium.wait("window.copied")
    assert chromium.run("window.copied") == report()["program"]
    chromium.wait("document.querySelector('[data-copy]').textContent === 'Copied'")


def test_a_closed_clipboard_selects(chromium, folder):
    chromium.open(folder / "gained.html")
    chromium.run("navigator.clipboard.writeText = () => Promise.reject(new Error('closed'))")
    chromium.click("[data-copy]")
    chromium.wait("getSelection().toString().includes('InferenceSession')")
    assert chromium.errors == []


def test_all_is_there_without_scripts(chromium, folder):
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(folder / "gained.html")
        shown = chromium.run(
            "document.querySelectorAll('.bars rect').length > 20 && document.querySelectorAll('.point').length > 8"
            " && document.querySelector('[data-copy]').hidden && document.getElementById('theme').hidden"
        )
        assert shown is True
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)


def test_a_point_leads_to_its_row(chromium, folder):
    chromium.open(folder / "gained.html")
    chromium.click("a[href='#p6'] path")
    chromium.wait("location.hash === '#p6'")
    assert chromium.run("document.querySelector('tr:has(:target)').textContent.includes('static uint8')")
