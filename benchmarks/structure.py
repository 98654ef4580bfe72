"""The structure of the code in figures, beside that of another checkout of the project.

    python -m benchmarks.structure [--before FOLDER] [--json FILE]

- ``rooms``: the folders of the package, and its modules outside of them; ``ranks``: how many of them a rank of
  ``tests/test_architecture.py`` tells apart;
- ``arrows``: imports from one room's module of another's, lazy ones and those for types too; ``arrows up``: those
  against the ranks; ``circles``: sets of rooms that reach one another;
- ``operator tables``: names for lists of three operators and more, outside ``ir/operators.py``; exceptions of a query
  of that table are none, nor is a dictionary from operators to functions, which says what they do;
- ``long functions``: of more than 50 lines, signatures with their docstrings aside; ``wide functions``: of more than 7
  parameters;
- ``walks in rules``: places in ``patterns/`` that go from a node to its neighbours by hand.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import networkx as nx

from benchmarks import report
from onnxrewrite.ir import schema

ROOT = Path(__file__).resolve().parents[1]

GOALS = {
    "arrows up": 0,
    "circles": 0,
    "root modules": 0,
    "operator tables": 5,
    "base names in several rooms": 0,
    "long functions": 0,
    "imports of the framework in a rule file": 1,
    "looks_* settings": 0,
    "walks in rules": 99,
    "Any": 299,
    "wide functions": 9,
}
"""At most so many."""

FEWER_LINES = 4500

_LONG, _WIDE, _TABLE = 50, 7, 3

_FACES = {"__init__", "__main__", "_moved", "costs", "deploy", "errors", "rules", "sessions"}

_WALK = re.compile(r"\.(?:producer|consumers|uses|predecessors|successors)\(|\.inputs\b|\.outputs\b|\.users\b")


@dataclass
class Checkout:
    """A folder with the project."""

    root: Path
    modules: dict[str, ast.Module] = field(init=False)
    texts: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        paths = sorted([*(self.root / "onnxrewrite").rglob("*.py"), *self._rule_files])
        self.texts = {p.relative_to(self.root).as_posix(): p.read_text(encoding="utf-8") for p in paths}
        self.modules = {name: ast.parse(text) for name, text in self.texts.items()}

    @property
    def _rule_files(self) -> list[Path]:
        return sorted((self.root / "patterns" / "onnxrewrite_patterns").glob("*.py"))

    @cached_property
    def own(self) -> dict[str, ast.Module]:
        """The modules of the package, by the path inside of it."""
        return {
            n.removeprefix("onnxrewrite/"): tree for n, tree in self.modules.items() if n.startswith("onnxrewrite/")
        }

    @cached_property
    def rules(self) -> dict[str, str]:
        """The texts of the rule files."""
        return {n: text for n, text in self.texts.items() if n.startswith("patterns/") and "__init__" not in n}

    @cached_property
    def rooms(self) -> set[str]:
        """Folders and modules of the package, its face aside."""
        return {_room(name) for name in self.own} - (_FACES - {"__main__", "errors"})

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The rank of each room, as the tests state it; empty if they do not."""
        tree = ast.parse((self.root / "tests" / "test_architecture.py").read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                if node.targets[0].id == "ROOMS":
                    return {name: rank for rank, name in enumerate(ast.literal_eval(node.value))}
                if node.targets[0].id == "RANKS" and isinstance(node.value, ast.Dict):
                    found: dict[str, int] = ast.literal_eval(node.value)
                    return found
        return {}

    @cached_property
    def arrows(self) -> list[tuple[str, str]]:
        """From room to room, once for each module that is imported by a module."""
        found = []
        for name, tree in self.own.items():
            own = _room(name)
            if own in self.rooms:
                reached = {t for t in _imports(tree) if t.split(".")[0] in self.rooms}
                found += [(own, t.split(".")[0]) for t in sorted(reached) if t.split(".")[0] != own]
        return found

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions, those of rules too."""
        return [
            n
            for tree in self.modules.values()
            for n in ast.walk(tree)
            if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    def figures(self) -> dict[str, int]:
        """Name to number."""
        ranks, graph = self.ranks, nx.DiGraph(self.arrows)
        names = defaultdict[str, set[str]](set)
        for name in self.own:
            if Path(name).stem != "__init__" and "/" in name:
                names[Path(name).stem].add(_room(name))
        imports = [
            sum(isinstance(n, ast.ImportFrom) and _is_framework(n.module or "") for n in self.modules[name].body)
            for name in self.rules
        ]
        return {
            "rooms": len(self.rooms),
            "ranks": len(set(ranks.values())),
            "arrows": len(self.arrows),
            "arrows up": sum(ranks.get(b, 0) >= ranks.get(a, 0) for a, b in self.arrows),
            "circles": sum(len(found) > 1 for found in nx.strongly_connected_components(graph)),
            "root modules": sum("/" not in name and Path(name).stem not in _FACES for name in self.own),
            "operator tables": sum(
                len(list(_tables(tree))) for n, tree in self.modules.items() if n != "onnxrewrite/ir/operators.py"
            ),
            "base names in several rooms": sum(len(found) > 1 for found in names.values()),
            "long functions": sum(_lines(n) > _LONG for n in self.functions),
            "functions": len(self.functions),
            "modules": len(self.modules),
            "lines": sum(len(text.splitlines()) for text in self.texts.values()),
            "imports of the framework in a rule file": max(imports),
            "looks_* settings": sum(len(re.findall(r"\blooks_(?:above|below)\s*=", t)) for t in self.rules.values()),
            "walks in rules": sum(len(_WALK.findall(text)) for text in self.rules.values()),
            "Any": sum(
                isinstance(n, ast.Name) and n.id == "Any" for tree in self.modules.values() for n in ast.walk(tree)
            ),
            "wide functions": sum(_width(n) > _WIDE for n in self.functions),
        }


FAMILIES = ("gelu", "grouped_conv", "quantized_tables", "shape_arithmetic", "transpose_operators")
"""Rule files that are looked at one by one."""


def family(checkout: Checkout, name: str) -> dict[str, int]:
    """The figures of one rule file."""
    path = f"patterns/onnxrewrite_patterns/{name}.py"
    text, tree = checkout.texts[path], checkout.modules[path]
    shown = [n.value for n in ast.walk(tree) if isinstance(n, ast.keyword) and n.arg == "examples"]
    imported = [n for n in tree.body if isinstance(n, ast.ImportFrom | ast.Import)]
    return {
        "lines": len(text.splitlines()),
        "of examples": sum((n.end_lineno or 0) - n.lineno + 1 for n in shown),
        "of imports": sum((n.end_lineno or 0) - n.lineno + 1 for n in imported),
        "functions": sum(isinstance(n, ast.FunctionDef) for n in ast.walk(tree)),
        "walks": len(_WALK.findall(text)),
    }


def _room(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


def _is_framework(module: str) -> bool:
    return module.split(".")[0] == "onnxrewrite"


def _imports(tree: ast.AST) -> Iterator[str]:
    """The modules of the package that a module imports, by their path inside of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "onnxrewrite":
            inside = (node.module or "").split(".")[1:]
            yield from (".".join([*inside, *([] if len(inside) > 1 else [a.name])]) for a in node.names)


def _tables(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that give a name to a list of operators; alternatives of a pattern are none, ``op["Conv", ...]``."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            stack: list[ast.AST] = [statement.value]
            while stack:
                node = stack.pop()
                if _is_query(node) or _defines(node):
                    continue
                if _lists_operators(node):
                    yield statement
                    break
                stack.extend([node.value] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node))


def _is_query(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "operators"


def _defines(node: ast.AST) -> bool:
    """True for a dictionary of functions, or of what makes them."""
    functions = ast.Lambda | ast.Name | ast.Attribute | ast.Call
    return isinstance(node, ast.Dict) and all(
        isinstance(value, functions) for key, value in zip(node.keys, node.values, strict=True) if key is not None
    )


def _lists_operators(node: ast.AST) -> bool:
    """True if a literal is a list of operators, or a string of their names."""
    held = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
    names = [e.value for e in held if isinstance(e, ast.Constant) and isinstance(e.value, str)]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        names = [word for word in node.value.split() if not word.isdigit()]
    return len(names) >= _TABLE and all(name in schema.operator_names() for name in names)


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _width(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return sum(a.arg not in ("self", "cls") for a in named)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exits with 1 where a goal is missed."""
    options = report.parser(__doc__)
    options.add_argument("--before", type=Path, metavar="FOLDER")
    given = options.parse_args(arguments)
    now = Checkout(ROOT).figures()
    then = Checkout(given.before.resolve()).figures() if given.before else None
    out = report.Report("structure")
    rows: list[report.Row] = [
        {"figure": name, **({"before": then[name]} if then else {}), "now": value} for name, value in now.items()
    ]
    out.table("The structure of the code", rows)
    checkouts = [("before", given.before.resolve())] if given.before else []
    sides = [(when, Checkout(root)) for when, root in (*checkouts, ("now", ROOT))]
    out.table("Rule files", [{"file": n, "when": w, **family(c, n)} for n in FAMILIES for w, c in sides])
    for name, limit in GOALS.items():
        out.goal(name, now[name], limit, unit="")
    if then:
        out.goal("fewer lines", then["lines"] - now["lines"], FEWER_LINES, unit="", least=True)
    return out.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
