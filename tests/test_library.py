"""Which rules the quick tests ask about: a rule that has changed is asked about again."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from library import LIBRARY, QUESTIONS, Answers, is_changed

from onnxrewrite.rewrite.fingerprint import fingerprint

ROOT = Path(__file__).parent
RULE = LIBRARY[0]
NOW = fingerprint(RULE).sha256


def answered(*outcomes: str) -> Answers:
    answers = Answers()
    for question, outcome in zip(sorted(QUESTIONS), outcomes, strict=False):
        answers.add(f"tests/{question}[{RULE.name}]@rule {RULE.name}", outcome)
    return answers


def test_a_rule_that_is_not_as_it_was_is_asked_about() -> None:
    assert not is_changed(RULE, {RULE.name: NOW})
    assert is_changed(replace(RULE, benefit=RULE.benefit + 1), {RULE.name: NOW})
    assert is_changed(RULE, {RULE.name: "as it was"})
    assert is_changed(RULE, {})


def test_a_rule_passes_when_every_question_about_it_was_answered() -> None:
    every = ["passed"] * len(QUESTIONS)
    assert answered(*every).renewed({}) == {RULE.name: NOW}
    assert answered(*every[1:]).renewed({}) == {}
    assert answered(*every[1:]).renewed({RULE.name: "before"}) == {RULE.name: "before"}
    assert answered(*every[1:], "failed").renewed({RULE.name: NOW}) == {}


def test_the_questions_are_those_that_are_asked() -> None:
    asking = re.compile(r'^@pytest\.mark\.parametrize\("rule", RULES\)\ndef (\w+)\(', re.MULTILINE)
    texts = {p.relative_to(ROOT): p.read_text(encoding="utf-8") for p in ROOT.rglob("test_*.py")}
    assert {f"{path}::{name}" for path, text in texts.items() for name in asking.findall(text)} == QUESTIONS
