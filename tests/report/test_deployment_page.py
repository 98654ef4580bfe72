"""The page of ``optimize``: what it says, that nothing breaks out of it, that plain data make it, always the same."""

import base64
import copy
import hashlib
import json
import re

import pytest
from optimized import closeness, nothing_gained, report
from test_html_page import HOSTILE, luminance, read

from onnxrewrite.report.html.deploy_page import deployment_page, verdicts
from onnxrewrite.report.html.notebook import outcome_html
from onnxrewrite.report.html.proposals import proposals, shown_of


def seen(text):
    return " ".join(" ".join(read(text).texts).split())


@pytest.fixture(scope="module")
def text():
    return deployment_page(report())


def test_the_heading(text):
    told = seen(text)
    assert "2.50 times as fast, 0.32 of the size, cosine 0.9921; the target of 2 times as fast is met." in told
    assert "at batch=1 seq=128, CPU, 4 threads, judged on 128 samples of data.npz" in told
    assert "Speed 2.50 × 2.40 to 2.60 times as fast" in told
    assert "Size 140.0 MB 437.9 MB before, -68.0%" in told
    assert "made up" not in told


def test_every_proposal_has_a_row_with_its_reason(text):
    told = seen(text)
    for each in proposals(report()):
        assert each.reason in told
        assert each.trial["how"] in told or not each.number
    assert "transformers taken back : there is nothing to do: no attention is left" in told
    assert "prune skipped : the target of 2 times is met without it" in told
    assert "taken back : static int8, 9 nodes float is better" in told
    assert "recommended : 0.56 of the time" in told
    assert told.count("too close to call: another run may decide otherwise") == 2


def test_every_point_leads_to_its_row(text):
    elements = read(text).elements
    targets = [a["href"].removeprefix("#") for name, a in elements if name == "a" and "href" in a]
    ids = [a["id"] for _, a in elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert set(targets) <= set(ids)
    assert {f"p{n}" for n in range(8)} <= set(targets)


def test_kept_and_taken_back_differ_in_form(text):
    paths = {a["class"]: a["d"] for name, a in read(text).elements if name == "path" and "class" in a}
    assert len({paths[kind] for kind in ("was", "kept", "undone")}) == 3
    assert "fill: url(#hatch)" in text
    assert '<pattern id="hatch"' in text


def test_closeness_of_every_output(text):
    told = seen(text)
    assert "output cosine noise, dB largest error mean error same first class same first classes" in told
    assert "logits 0.962000 41.2 1.3e-02 4.2e-04 0.9922 0.9870 mask 0.999990" in told
    assert "logits 0.200000 -1.0 3.0e+00 4.2e-04 7 mask" in told
    assert "Rewrites gelu-erf: 12, layer-norm: 25" in told


def test_time_by_operator(text):
    told = seen(text)
    assert "12.1 ms → 4.20 ms in kernels" in told
    assert "MatMul 7.10 ms → 900 µs" in told
    assert "QLinearMatMul – → 2.10 ms" in told
    assert "6 other 900 µs → 500 µs" in told


def test_what_to_deploy(text):
    told = seen(text)
    assert "Made by rewrite (37 rewrites), quantize (static int8, 9 nodes float)" in told
    assert "File deployed/model.onnx" in told
    program = re.search(r'<pre id="program"[^>]*>(.*?)</pre>', text, re.S)[1]
    assert "&quot;&quot;&quot;Runs it." in program
    (button,) = [a for name, a in read(text).elements if name == "button" and "data-copy" in a]
    assert button["data-copy"] == "program"
    assert "hidden" in button


def test_nothing_gained():
    told = seen(deployment_page(nothing_gained()))
    assert "No stage brought anything: deploy the original, with the options below." in told
    assert "The data were made up, so the quality on yours is not known" in told
    assert "Not measured: the profile failed: no space left on device." in told
    assert "the original 12.3 ms 11.8–12.8 200 ms 437.9 MB 1.31 GB cosine 1.0000 recommended" in told
    assert [kind for kind, _ in verdicts(nothing_gained())] == ["plain", "warning"]


def test_a_missed_target_warns():
    (found,) = verdicts(report(target=4.0, target_met=False))
    assert found[0] == "warning"
    assert found[1].endswith("the target of 4 times as fast was missed.")


def test_what_is_slower_says_so():
    """It may be kept for its size."""
    final = copy.deepcopy(report()["final"])
    final["metrics"]["ratio"] |= {"low": 1.03, "median": 1.04, "high": 1.05}
    told = seen(deployment_page(report(final=final, speedup=1 / 1.04, target=None, target_met=None)))
    assert "1.04 times as slow, 0.32 of the size" in told
    assert "Speed 0.96 × 1.03 to 1.05 times as slow" in told
    assert "times as fast" not in told


def test_no_stage_at_all():
    told = seen(deployment_page(report(steps=[], final=report()["baseline"], speedup=1.0, binding={}, notes=[])))
    assert "deploy the original" in told


@pytest.mark.parametrize("change", [{"max_drop": None}, {"max_drop": 0.0}, {"max_drop": 40.0}, {"max_drop": -0.1}])
def test_any_gate(change):
    data = report()
    data["gate"].update(change)
    assert "nan" not in deployment_page(data).split("</style>")[1].split("<script>")[0]


def test_a_metric_of_another_scale_and_one_that_failed():
    data = report()
    for number, step in enumerate(s for s in data["steps"] if s["trials"]):
        for trial in step["trials"]:
            trial["metrics"]["quality"] |= {"metric": 71.2 - number, "baseline": 72.0, "drop": 0.8 + number}
    data["gate"]["max_drop"] = 1.5
    told = seen(deployment_page(data))
    assert "metric 71.2" in told
    assert "allowed: 1.5" in told
    data["steps"][0]["trials"][0]["metrics"]["quality"] |= {"metric": None, "drop": None}
    assert "inf · " in seen(deployment_page(data))


def test_results_without_numbers():
    data = report()
    strings = {"label": closeness(1.0, agreement=0.98, snr=None, largest=0.0)}
    data["steps"][0]["trials"][0]["metrics"]["quality"] |= {"outputs": strings, "worst": "label"}
    data["steps"][1]["trials"][0]["metrics"]["quality"] |= {"outputs": {}, "worst": None}
    told = seen(deployment_page(data))
    assert "agreement 0.9800" in told
    assert "label 1.000000 ∞ 0" in told


def test_the_same_data_give_the_same_bytes(text):
    assert deployment_page(json.loads(json.dumps(report(), sort_keys=True))) == text
    before = report()
    after = copy.deepcopy(before)
    deployment_page(after)
    assert after == before


def test_nothing_is_fetched_and_no_other_script_runs(text):
    reader = read(text)
    assert not [a for _, a in reader.elements if {"src", "srcset", "action", "data"} & a.keys()]
    assert not [a for _, a in reader.elements if "href" in a and not a["href"].startswith("#")]
    assert not re.search(r"@import|url\((?!#)", text)
    (policy,) = [a["content"] for name, a in reader.elements if name == "meta" and "http-equiv" in a]
    assert policy.startswith("default-src 'none'")
    run = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in reader.scripts]
    assert run == re.findall(r"'sha256-([^']+)'", policy)
    assert len(run) == 2


def poisoned(value, number=0):
    """Plain data with a hostile name in place of every text, and of every name that is not ours."""
    if isinstance(value, dict):
        return {key: poisoned(each, number + i) for i, (key, each) in enumerate(value.items())}
    if isinstance(value, list):
        return [poisoned(each, number + i) for i, each in enumerate(value)]
    return f"`{HOSTILE[number % len(HOSTILE)]}\n{value}'" if isinstance(value, str) else value


def renamed(outputs):
    return {HOSTILE[n]: c for n, c in enumerate(outputs.values())}


def hostile():
    data = poisoned(report())
    for trial in [t for s in data["steps"] for t in s["trials"]] + [data["baseline"], data["final"]]:
        found = trial["metrics"]["quality"]
        found["outputs"] = renamed(found["outputs"])
        found["worst"] = HOSTILE[0]
        trial["facts"] = {HOSTILE[2]: {HOSTILE[3]: HOSTILE[4]}, HOSTILE[5]: [{HOSTILE[0]: 1}]}
    data["binding"] = {HOSTILE[0]: 1}
    data["operators"]["missing"] = ""
    return data


def test_no_name_breaks_out(text):
    found, plain = read(deployment_page(hostile())), read(text)
    assert found.scripts == plain.scripts
    assert {name for name, _ in found.elements} <= {name for name, _ in plain.elements}
    assert {key for _, a in found.elements for key in a} <= {key for _, a in plain.elements for key in a}
    assert not any(key.startswith("on") for _, a in found.elements for key in a)
    assert "<img" not in deployment_page(hostile())
    shown = "".join(found.texts)
    assert all(name in shown for name in HOSTILE)


def test_notebooks(text):
    for data in (report(), nothing_gained(), hostile()):
        reader = read(outcome_html(data))
        assert not {"script", "style", "img", "svg"} & {name for name, _ in reader.elements}
    told = seen(outcome_html(report()))
    assert "2.50 times as fast, 0.32 of the size" in told
    assert "recommended" in told
    assert "6 stages" in told


def test_numbers_of_proposals():
    found = proposals(report())
    assert [p.number for p in found] == list(range(8))
    assert [p.number for p in found if p.is_kept] == [0, 1, 5]
    assert [p.number for p in found if p.is_final] == [5]
    assert [p.number for p in shown_of(report(), found)] == [0, 1, 2, 5, 7]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_and_bars_can_be_seen(text, theme):
    """The contrasts that WCAG 2.1 asks of text, 4.5, and of graphics, 3, both at level AA."""
    colours = {n: luminance(p[theme]) for n, *p in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", text)}
    for ink, ground, least in (
        ("warning", "warning-tint", 4.5),
        ("soft", "card", 4.5),
        ("ink", "card", 4.5),
        ("made", "ground", 3),
        ("soft", "ground", 3),
        ("good", "card", 3),
    ):
        high, low = sorted((colours[ink], colours[ground]), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= least, f"{ink} on {ground}"
