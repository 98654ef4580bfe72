"""The README is true: its commands print what it shows, its Python runs, its table lists the rules that there are."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onnxrewrite.report.api_reference import renewed
from onnxrewrite.report.rules_report import catalogue
from onnxrewrite.rewrite import registry
from onnxrewrite.testing import golden

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def section(name: str) -> str:
    match = re.search(rf"<!-- {name}: .*?-->\n(.*?)<!-- end -->", TEXT, re.DOTALL)
    assert match is not None
    return match.group(1)


def renew(name: str, content: str) -> None:
    pattern = rf"(<!-- {name}: .*?-->\n).*?(<!-- end -->)"
    text = README.read_text(encoding="utf-8")
    README.write_text(re.sub(pattern, lambda m: m[1] + content + m[2], text, flags=re.DOTALL), encoding="utf-8")


def without_measures(text: str) -> str:
    """Times and rounding errors differ between machines."""
    return re.sub(r"\d\.\de[-+]\d\d|in [\d.]+ s", "#", text)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "golden_models" / "bert", tmp_path / "golden_models" / "bert")
    return tmp_path


def run(command: str, folder: Path) -> str:
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env={**_environment(), "COLUMNS": "100"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'patterns'}", "PYTHONIOENCODING": "utf-8"}


def test_transcript(checkout: Path, update_golden: bool) -> None:
    command = "onnxrewrite apply golden_models/bert/model.onnx -o bert.onnx"
    made = f"```console\n$ {command}\n{run(command, checkout).strip()}\n```\n"
    if update_golden:
        renew("transcript", made)
        return
    assert without_measures(made) == without_measures(section("transcript"))


def test_table_of_rules(update_golden: bool) -> None:
    rules = sorted(registry.load(plugins=False), key=lambda r: (r.stage, Path(r.source).stem, r.name))
    rows = [
        f"| `{r.name}` | {r.stage.name.lower()} | {r.summary.rstrip('.').replace('|', chr(92) + '|')} |" for r in rules
    ]
    made = "\n".join(["| rule | stage | what it does |", "|---|---|---|", *rows, ""])
    if update_golden:
        renew("rules", made)
        return
    assert made == section("rules")


def test_catalogue_of_rules(update_golden: bool) -> None:
    served: dict[str, list[str]] = {}
    for each in golden.find(ROOT / "golden_models"):
        for rule in each.expected["rules"]:
            served.setdefault(rule, []).append(each.folder.name)
    effects = json.loads((ROOT / "docs" / "effects.json").read_text(encoding="utf-8"))
    page, made = ROOT / "docs" / "rules.md", catalogue(registry.load(plugins=False), served, effects)
    if update_golden:
        page.write_text(made, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == made, "renew it with pytest --update-golden"


def test_reference_is_readable_as_it_is(update_golden: bool) -> None:
    page = ROOT / "docs" / "reference.md"
    made = renewed(page.read_text(encoding="utf-8"))
    if update_golden:
        page.write_text(made, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == made, "renew it with pytest --update-golden"
    assert "- `apply(source: io.Source, *, rules: " in made
    assert "    - `require(condition: object, reason: str, " in made


def test_everything_can_be_imported_at_once() -> None:
    names: dict[str, object] = {}
    exec("from onnxrewrite import *", names)
    import onnxrewrite

    assert set(onnxrewrite.__all__) <= names.keys()


@pytest.mark.slow
def test_python(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)
    api, rule, sets = blocks("python")
    exec(compile(api, "README.md", "exec"), {})
    exec(compile(sets, "README.md", "exec"), {})
    assert (checkout / "bert.onnx").exists()
    (checkout / "log_softmax.py").write_text(rule, encoding="utf-8")
    _log_softmax_model(checkout / "model.onnx")
    assert "LogSoftmax" in run("onnxrewrite rules log-softmax --rules log_softmax.py", checkout)
    assert "log-softmax  tested" in run("onnxrewrite verify log_softmax.py", checkout)
    printed = run("onnxrewrite apply model.onnx --rules log_softmax.py --only log-softmax", checkout)
    assert re.search(r"log-softmax +1\b", printed)


OPTIONAL = {"torch"}
"""Packages that a page may need and that need not be there."""

SLOW = {"optimizing.md", "mixed-precision.md", "measuring.md", "profiling.md", "quantizing.md"}
"""Pages whose Python measures whole models."""

DOCS = sorted((ROOT / "docs").rglob("*.md"))


def page(path: Path) -> object:
    return pytest.param(path, id=str(path.relative_to(ROOT)), marks=[pytest.mark.slow] if path.name in SLOW else [])


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("page", [page(each) for each in DOCS])
def test_python_in_docs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "golden_models").symlink_to(ROOT / "golden_models", target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    text, names = page.read_text(encoding="utf-8"), dict[str, object]()
    for continued, block in re.findall(r"^(<!-- continued -->\n)?```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        names = names if continued else {}
        try:
            exec(compile(block, page.name, "exec"), names)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
            pytest.skip(f"{error.name} is not installed")


@pytest.mark.parametrize("page", [README, *DOCS], ids=[str(p.relative_to(ROOT)) for p in [README, *DOCS]])
def test_links(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)#:]+)\)", prose)
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.slow
def test_conflict(checkout: Path) -> None:
    (told,) = re.findall(r"`([^`]* was chosen over [^`]*)`", TEXT)
    assert f"\n  {told}\n" in run("onnxrewrite apply golden_models/bert/model.onnx --dry-run -v --check off", checkout)


def test_shown_commands_are_the_tested_ones() -> None:
    shown = {line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ onnx")}
    assert shown == {
        "onnxrewrite apply golden_models/bert/model.onnx -o bert.onnx",
        "onnxrewrite rules log-softmax --rules log_softmax.py",
        "onnxrewrite verify log_softmax.py",
        "onnxrewrite apply model.onnx --rules log_softmax.py --only log-softmax",
    }


def test_ci_runs_the_readme_command() -> None:
    commands = [
        line[2:] for b in blocks("console") for line in b.splitlines() if line.startswith("$ ") and "pytest" in line
    ]
    assert len(commands) == 1
    assert "sed -n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def _log_softmax_model(path: Path) -> None:
    from onnxrewrite import io
    from onnxrewrite.ir import text

    io.save(text.parse("float[2,3] x;  s = Softmax(x, axis=1)  y = Log(s)"), path)
