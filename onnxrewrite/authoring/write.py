"""From a draft to the text of a rule file, and of the test beside it, as a person would have written them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxrewrite.authoring import naming
from onnxrewrite.authoring.example import Cut
from onnxrewrite.authoring.formula import PART, WIDTH, Formulas, literal
from onnxrewrite.authoring.generalize import Draft, Kind, Slot
from onnxrewrite.authoring.staged_model import FILL_IN
from onnxrewrite.ir.operators import operators
from onnxrewrite.rewrite.rule import Example, Rejects, Rewrites, Stage

_OPSET = 17
"""An example of this opset need not say so."""


@dataclass(frozen=True)
class Finish:
    """The rewrite of a rule that nobody has to finish.

    Attributes:
        becomes: The right side of the first line of its docstring.
        notes: What the module's docstring says beside that.
        body: The lines of its function.
        examples: Its examples.
        settings: Further arguments of ``rule``, as text.
    """

    becomes: str
    notes: tuple[str, ...]
    body: tuple[str, ...]
    examples: tuple[Example, ...] = ()
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """The facts about a rule that is being written.

    Attributes:
        name: The rule's.
        model: The name of the model that the region was cut from.
        starts: The names at which it begins.
        ends: The names at which it ends.
        places: The anchors' names, the region's own first.
        stage: The stage in which the rule runs.
        notes: Notes for its author.
        cuts: Examples, the region itself first.
        spelled: True if sums and products are written as the operators that they are.
        ranked: True if constants must be of the rank that they have everywhere.
        called: Names for nodes that the rewrite asks for.
        finish: The rewrite; None where its author has to fill it in.
    """

    name: str
    model: str
    starts: tuple[str, ...]
    ends: tuple[str, ...]
    places: tuple[str, ...]
    stage: Stage
    notes: tuple[str, ...] = ()
    cuts: tuple[Cut, ...] = ()
    spelled: bool = False
    ranked: bool = False
    called: Mapping[ir.Node, str] = field(default_factory=dict)
    finish: Finish | None = None

    @property
    def function(self) -> str:
        """The name of the function that is the rule."""
        return f"to_{identifier_of(self.name)}"


def identifier_of(name: str) -> str:
    """A rule's name as Python has it."""
    return re.sub(r"[-.]", "_", name if name[0].isalpha() else f"rule_{name}")


# ------------------------------------------------------------------------------------------------ declarations


def _declarations(draft: Draft, slots: Mapping[Slot, str], ranked: bool) -> Iterator[str]:
    """The captures, those of one class that need no more said together."""
    plain: dict[Kind, list[str]] = {}
    for slot in draft.slots:
        more = _more(slot, ranked)
        if slot.kind is Kind.ATTR or more:
            kind = f"Attr[{_annotation(slot)}]" if slot.kind is Kind.ATTR else slot.kind.value
            yield f'{slots[slot]} = {kind}("{slots[slot]}"{more})'
        else:
            plain.setdefault(slot.kind, []).append(slots[slot])
    for kind, members in plain.items():
        few: list[str] = []
        for member in members:
            if few and len(_together(kind, [*few, member])) > WIDTH:
                yield _together(kind, few)
                few = []
            few.append(member)
        yield _together(kind, few)


def _together(kind: Kind, names: Sequence[str]) -> str:
    """Several captures of one class in a line."""
    if len(names) == 1:
        return f'{names[0]} = {kind.value}("{names[0]}")'
    quoted = ", ".join(f'"{n}"' for n in names)
    return f"{', '.join(names)} = map({kind.value}, ({quoted}))"


def _more(slot: Slot, ranked: bool) -> str:
    """Further arguments of a capture: the dtype, the rank and the default that it requires."""
    dtype = ", dtype=FLOATS" if slot.kind is Kind.VAR and slot.is_float else ""
    ranks = {len(v.shape) if isinstance(v, ir.Value) and v.shape is not None else 0 for v in slot.values}
    rank = f", rank={ranks.pop()}" if ranked and slot.kind is Kind.CONST and len(ranks) == 1 and min(ranks) > 0 else ""
    return dtype + rank + (", default=None" if slot.is_optional else "")


def _annotation(slot: Slot) -> str:
    present = [v for v in slot.values if v is not None]
    kinds = {type(v) for v in present}
    if kinds == {tuple}:
        inner = {type(i) for v in present for i in v}
        return f"tuple[{inner.pop().__name__}, ...]" if len(inner) == 1 else "Any"
    return kinds.pop().__name__ if len(kinds) == 1 and kinds <= {int, float, str} else "Any"


# ---------------------------------------------------------------------------------------------------- rule file


def rule_file(draft: Draft, source: Source, slots: Mapping[Slot, str]) -> str:
    """The text of the rule file, given the names of its captures."""
    names = naming.Names({source.function, *slots.values(), *source.called.values()})
    formulas = Formulas(draft, slots, names, source.spelled, source.called)
    outputs = [t.code for t in formulas.outputs]
    pattern = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
    body = [*_declarations(draft, slots, source.ranked), "", *formulas.lines, *([""] if formulas.lines else [])]
    body += ["", *_rule(draft, source, slots, pattern), ""]
    code = "\n".join(body)
    return f"{_docstring(draft, source, slots)}\n\n{_imports(code)}\n{code}"


def _docstring(draft: Draft, source: Source, slots: Mapping[Slot, str]) -> str:
    if source.finish is not None:
        lines = [f'"""{_summary(draft)} ⟶ {source.finish.becomes}.', ""]
        for note in source.finish.notes:
            lines += textwrap.wrap(note, WIDTH, break_long_words=False, break_on_hyphens=False)
        return "\n".join([*lines, '"""'])
    way = f"{', '.join(source.starts)} to {', '.join(source.ends)}"
    count, where = _count(len(draft.steps), "operator"), _count(len(source.places), "place")
    cut = f"Captured from {way}: {count}, at {where} of {source.model}."
    lines = [f'"""{_summary(draft)} in one operator.', ""]
    lines += textwrap.wrap(cut, WIDTH, break_long_words=False, break_on_hyphens=False)
    lines += [line for note in source.notes for line in textwrap.wrap(note, WIDTH, break_long_words=False)]
    body = "\n".join(lines[1:]).replace("\\", "\\\\").replace('"""', "'''")
    return f'{lines[0]}\n{body}\n"""'


def _summary(draft: Draft) -> str:
    """The operators that say most, in order."""
    operators = list(dict.fromkeys(s.node.op_type for s in draft.steps))
    telling = [o for o in operators if o not in _PLUMBING | _ARITHMETIC]
    shown = telling or [o for o in operators if o not in _PLUMBING] or operators
    rest = "more" if len(shown) > 4 else "arithmetic" if _ARITHMETIC.intersection(operators) - {*shown} else ""
    return ", ".join(shown[:4]) + (f" and {rest}" if rest else "")


_PLUMBING = {*operators("view permute select repeat join"), "Cast", "Identity"}
_ARITHMETIC = {*operators(marks="sum"), *operators(marks="product"), "Sqrt", "Where"}


def _imports(code: str) -> str:
    lines = ["from __future__ import annotations", ""]
    standard = [line for name, line in _STANDARD.items() if re.search(rf"(?<![\w.]){name}\b", code)]
    lines += [*standard, ""] if standard else []
    return "\n".join([*lines, "from onnxrewrite.rules import *", ""])


_STANDARD = {
    "math": "import math",
    "ir": "import onnx_ir as ir",
    "Sequence": "from collections.abc import Sequence",
    "Any": "from typing import Any",
}


def _rule(draft: Draft, source: Source, slots: Mapping[Slot, str], pattern: str) -> Iterator[str]:
    yield "@rule("
    yield f'    "{source.name}",'
    yield f"    {source.stage.name},"
    yield f"    {pattern},"
    finish = source.finish
    if draft.allow_shared:
        yield "    allow_shared=True,"
    yield from (f"    {setting}," for setting in (finish.settings if finish is not None else ()))
    waiting = (Rejects(cut.text, FILL_IN, cut.opset) for cut in source.cuts)
    yield "    examples=("
    for example in finish.examples if finish is not None else waiting:
        yield from (f"        {line}" for line in _example(example))
    yield "    ),"
    yield ")"
    result = "Value" if len(draft.outputs) == 1 else "Sequence[Value]"
    yield f"def {source.function}(m: Match, build: Builder) -> {result}:"
    becomes = "what it becomes" if finish is None else finish.becomes
    formula = _formula(draft, slots, pattern)
    formula = formula if len(formula) + len(becomes) < WIDTH - 10 else _summary(draft)
    yield f'    """{formula} ⟶ {becomes}."""'
    if finish is not None:
        yield from (f"    {line}" for line in finish.body)
        return
    yield f'    m.refuse("{FILL_IN} of {source.name}")'


def _example(example: Example) -> Iterator[str]:
    """The lines of an example."""
    yield f"{type(example).__name__}("
    yield from (f"    {line}" for line in _quoted(example.graph))
    if isinstance(example, Rewrites):
        first, *others = _quoted(example.to)
        yield f"    to={first}"
        yield from (f"    {line}" for line in others)
    else:
        yield f"    because={literal(example.because)},"
    if example.opset != _OPSET:
        yield f"    opset={example.opset},"
    if example.target != "onnxruntime-cpu":
        yield f"    target={literal(example.target)},"
    yield "),"


def _formula(draft: Draft, slots: Mapping[Slot, str], pattern: str) -> str:
    """The pattern if it is short and of captures only, else its operators."""
    taken = [n for s, n in slots.items() if s.kind is Kind.VAR and not s.is_shape]
    words = set(re.findall(r"(?<![\w.\"])[a-z_]\w*(?!\w*=)", pattern)) - {"op", "any_of", "microsoft", "math"}
    is_whole = len(pattern) < PART and words <= {*slots.values()}
    return pattern if is_whole else f"{_summary(draft)} of {', '.join(taken[:6]) or 'nothing'}"


def _quoted(text: str) -> list[str]:
    """A text of several lines as a Python string: adjacent literals, in each as many statements as fit."""
    width = WIDTH - 24
    lines: list[str] = []
    for statement in text.splitlines():
        if lines and len(lines[-1]) + len(statement) + 2 <= width:
            lines[-1] += f"  {statement}"
        else:
            pieces = textwrap.wrap(statement, width, break_long_words=False, break_on_hyphens=False)
            lines += [f"{'  ' if lines and n == 0 else ' ' if n else ''}{piece}" for n, piece in enumerate(pieces)]
    quoted = [repr(line) if '"' in line else f'"{line}"' for line in lines]
    return [*quoted[:-1], f"{quoted[-1]},"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# ---------------------------------------------------------------------------------------------------- test file


def test_file(source: Source, rule_name: str, model: str) -> str:
    """The text of the test beside a rule file.

    Args:
        source: The facts about the rule.
        rule_name: The rule file's name.
        model: The model's path as the test's folder sees it.
    """
    listed = "".join(f"    {literal(place)},\n" for place in source.places)
    return _TEST.format(name=source.name, rule_file=literal(rule_name), model=literal(model), places=listed)


_TEST = '''"""{name}: its examples, the places that it was captured from, and, once it is filled in, its numbers."""

from pathlib import Path

import pytest

from onnxrewrite.authoring.capture_checks import check_numbers, load_rule, matching, places
from onnxrewrite.rewrite.rule import Example
from onnxrewrite.testing import check_example

HERE = Path(__file__).parent
RULE = load_rule(HERE / {rule_file}, "{name}")
MODEL = HERE / {model}

PLACES = {{
{places}}}
"""The values that it replaced in the model that it was captured from."""


@pytest.mark.parametrize("example", RULE.examples)
def test_example(example: Example) -> None:
    check_example(RULE, example)


@pytest.mark.parametrize("example", matching(RULE))
def test_pattern_is_in_the_example(example: Example) -> None:
    assert places(RULE, example)


@pytest.mark.skipif(not MODEL.exists(), reason="the model is not there")
def test_pattern_is_where_it_was_captured() -> None:
    assert set(places(RULE, MODEL)) >= PLACES


@pytest.mark.parametrize("example", matching(RULE))
def test_numbers(example: Example) -> None:
    check_numbers(RULE, example)
'''
