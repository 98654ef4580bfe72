"""Forged certificates: real ones with fields changed, and digests that fit, so that no first look turns them away.

    python -m benchmarks.hostile --only certificates [--seed N] [--count N]

Each names files and code that it should not, or holds values that nothing writes.  Nothing may be run, written or
changed, and every command must end in time, with a documented exit status and one line.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

from benchmarks.forks import forked
from benchmarks.hostile.case import CANARY, Case
from onnxrewrite.certificate.record import SUFFIX, signed
from onnxrewrite.system.digests import sha256_of

Data: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str | int, ...]

COUNT = 400
"""Cases without ``--count``."""

_LIMIT = 64
"""Bytes of weights above which the models here have external data."""

_MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[n, 32] x) => (float[n, 32] y)
<float half = {0.5}, float one = {1.0}, float root = {1.41421356}>
{ d = Div(x, root) e = Erf(d) a = Add(e, one) m = Mul(x, a) g = Mul(m, half)
  h = MatMul(g, w) b = Neg(h) c = Neg(b) y = Relu(c) }"""

_RULES = f'''"""Rules that leave a trace when they are loaded."""

import os
from onnxrewrite.rules import Rule, Stage, Var, op
%s
with open(os.environ["{CANARY}"], "a") as file:
    file.write("my_rules\\n")
x = Var("x")

def twice(m, build):
    """Neg(Neg(x)) ⟶ x"""
    return m[x]

def wrong(m, build):
    """Relu(x) ⟶ Abs(x), which a check turns down."""
    return build.Abs(m[x])

RULES = (
    Rule("my-double-negation", Stage.CANONICALIZE, op.Neg(op.Neg(x)), twice, benefit=999),
    Rule("my-relu-is-abs", Stage.CANONICALIZE, op.Relu(x), wrong, benefit=999),
)
'''

_HELPER = f'''import os
with open(os.environ["{CANARY}"], "a") as file:
    file.write(__name__ + "\\n")
LIMIT = %d
'''


@dataclass(frozen=True)
class _Base:
    """A real certificate, with all that it tells of, in a folder that is copied for each case.

    Attributes:
        name: Of the folder.
        rules: The arguments of ``--rules``.
        has_array: True if an array was given for the checks.
        is_external: True if weights lie outside of the models.
        files: Files beside the model, by name.
    """

    name: str
    rules: tuple[str, ...] = ()
    has_array: bool = False
    is_external: bool = False
    files: tuple[tuple[str, str], ...] = ()

    @property
    def inline_limit(self) -> int | None:
        return _LIMIT if self.is_external else None


_BASES = {
    base.name: base
    for base in (
        _Base("plain"),
        _Base("array", has_array=True),
        _Base("external", is_external=True),
        _Base("rules", rules=("my_rules.py",), files=(("my_rules.py", _RULES % ""),)),
        _Base(
            "helper",
            rules=("my_rules.py",),
            files=(("my_rules.py", _RULES % "from my_helper import LIMIT"), ("my_helper.py", _HELPER % 1)),
        ),
        _Base(
            "package",
            rules=("my_package.rules",),
            files=(
                ("my_package/__init__.py", _HELPER % 1),
                ("my_package/rules.py", _RULES % "from my_package.helper import LIMIT"),
                ("my_package/helper.py", _HELPER % 2),
            ),
        ),
    )
}


def certificates(folder: Path, seed: int = 0, count: int = COUNT) -> Iterator[Case]:
    """Forged certificates, each with all that it tells of in a folder below ``folder``.

    Args:
        folder: An empty folder.
        seed: Of what is drawn; the same seed makes the same cases.
        count: The number of cases; 300 or more have all that is listed here, the others are drawn.
    """
    templates = folder / "templates"
    made = list(forked([(base, templates / base.name) for base in _BASES.values()], _make))
    failed = next((each.failure for each in made if each.failure), None)
    if failed is not None:
        raise RuntimeError(f"no certificate to forge: {failed}")
    dice = random.Random(seed)
    forgeries = [*_forgeries(), *_drawn(templates, dice)]
    chosen = forgeries if count >= len(forgeries) else _sample(forgeries, count, dice)
    for number, forgery in enumerate(chosen):
        yield _case(forgery, templates, folder / f"{number:04d}")


def _sample(forgeries: list[_Forgery], count: int, dice: random.Random) -> list[_Forgery]:
    """The listed ones first, in a drawn order where not all of them are wanted."""
    listed = [f for f in forgeries if not f.is_drawn]
    if count <= len(listed):
        return [forgeries[i] for i in sorted(dice.sample(range(len(listed)), count))]
    return [*listed, *dice.sample([f for f in forgeries if f.is_drawn], count - len(listed))]


# ------------------------------------------------------------------------------------------------ real certificates


def _make(task: tuple[_Base, Path]) -> None:
    """Apply, with a certificate; in a process of its own."""
    from onnxrewrite.cli import main
    from onnxrewrite.io import external

    base, folder = task
    folder.mkdir(parents=True)
    for name, text in base.files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    model = onnx.parser.parse_model(_MODEL)
    weight = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    if base.is_external:
        onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.bin", size_threshold=0)
        external.INLINE_LIMIT = _LIMIT  # type: ignore[misc]
    else:
        onnx.save(model, folder / "model.onnx")
    os.chdir(folder)
    os.environ[CANARY] = os.devnull
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    given = [part for rules in base.rules for part in ("--rules", rules)]
    if base.has_array:
        np.save("x.npy", np.ones((2, 32), np.float32))
        given += ["--input", "x=x.npy"]
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(["apply", "model.onnx", "-o", "out.onnx", "--lower", "fused", "--quiet", *given])
    if code:
        raise RuntimeError(f"apply ended with {code}")


# ------------------------------------------------------------------------------------------------------- forgeries


@dataclass(frozen=True)
class _Forgery:
    """The changes to a copy of a real certificate, and to the files around it.

    Attributes:
        change: Changes the data; it is signed afterwards.
        around: Changes files in the case's folder; given that folder.
        raw: Changes the bytes, signed or not.
        may_run: The modules that are run where they are trusted.
        codes: The exit status that a command may have.
    """

    name: str
    base: str
    change: Callable[[Data, Path], None] = lambda data, folder: None
    around: Callable[[Path], None] = lambda folder: None
    raw: Callable[[bytes], bytes] = lambda content: content
    may_run: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset((1, 2))
    is_drawn: bool = False


def _case(forgery: _Forgery, templates: Path, root: Path) -> Case:
    base, folder = _BASES[forgery.base], root / "folder"
    shutil.copytree(templates / base.name, folder)
    (root / "outside").mkdir()
    (root / "outside" / "victim").write_bytes(b"precious")
    (root / "outside" / "rules.py").write_text(_RULES % "")
    (folder / "sub").mkdir()
    _odd_files(root)
    path = folder / f"out.onnx{SUFFIX}"
    data: Data = json.loads(path.read_bytes())
    forgery.change(data, folder)
    path.write_bytes(forgery.raw(signed(data)))
    forgery.around(folder)
    told = path.name
    plain = (("replay", told), ("check", "--certificate", told))
    trusting = tuple((*command, "--trust") for command in plain)
    return Case(
        name=forgery.name,
        root=root,
        folder=folder,
        commands=(*plain, *trusting),
        codes=forgery.codes,
        trusting=trusting,
        may_run=forgery.may_run,
        inline_limit=base.inline_limit,
        environment={"PYTHONPATH": str(folder)},
    )


def _odd_files(root: Path) -> None:
    """Put a FIFO and links into the case's folder."""
    folder = root / "folder"
    os.mkfifo(folder / "fifo")
    for name, target in (
        ("to_victim", "../outside/victim"),
        ("to_rules.py", "../outside/rules.py"),
        ("to_zero", "/dev/zero"),
        ("dangling", "nowhere"),
        ("loop", "loop"),
    ):
        (folder / name).symlink_to(target)


NAMES = {
    "absolute": "{root}/outside/victim",
    "above": "../outside/victim",
    "by a detour": "sub/../../outside/victim",
    "empty": "",
    "this folder": ".",
    "the folder above": "..",
    "a folder": "sub",
    "a folder, with a slash": "sub/",
    "null": "a\0b",
    "long": "x" * 300,
    "very long": "x/" * 5000,
    "a device": "/dev/zero",
    "another device": "/dev/stdin",
    "a FIFO": "fifo",
    "a link outside": "to_victim",
    "a link to a device": "to_zero",
    "a dangling link": "dangling",
    "a loop": "loop",
    "lines": "a\nonnxrewrite: all is well",
    "escapes": "\x1b[31mred\x1b[0m\x9b5m",
    "right to left": "\u202egnp.exe",
    "half a character": "\ud800",
    "a home": "~/x",
    "an address": "file:///etc/passwd",
    "another system": "C:\\x",
}

_PATHS: dict[str, tuple[str, Place, bool]] = {
    "the input": ("plain", ("input", "path"), False),
    "the output": ("plain", ("output", "path"), False),
    "the model of the input": ("external", ("input", "sha256", "model.onnx"), True),
    "the weights of the input": ("external", ("input", "sha256", "model.bin"), True),
    "the model of the output": ("external", ("output", "sha256", "out.onnx"), True),
    "the weights of the output": ("external", ("output", "sha256", "out.onnx.data"), True),
    "an array": ("array", ("options", "inputs", "x", "path"), False),
    "the rules": ("rules", ("options", "rules", 0), False),
}
"""Base, place, and whether it is the key that is a name."""


def _forgeries() -> Iterator[_Forgery]:
    yield from _of_paths()
    yield from _of_code()
    yield from _of_bytes()


def _of_paths() -> Iterator[_Forgery]:
    for field, (base, place, is_key) in _PATHS.items():
        for kind, name in NAMES.items():
            yield _Forgery(f"{field} is {kind}", base, _renamed(place, name, is_key=is_key), codes=_ANY)


_ANY = frozenset((0, 1, 2))


def _renamed(place: Place, name: str, *, is_key: bool) -> Callable[[Data, Path], None]:
    def change(data: Data, folder: Path) -> None:
        told = name.replace("{root}", str(folder.parent))
        holder = _at(data, place[:-1])
        if is_key:
            holder[told] = _digest_of(folder, told) or holder[place[-1]]
            del holder[place[-1]]
        else:
            holder[place[-1]] = told

    return change


def _digest_of(folder: Path, name: str) -> str:
    """Of the file that is meant, where there is one: nothing is to be noticed by that."""
    try:
        return sha256_of([folder / name])[0]
    except Exception:
        return ""


def _of_code() -> Iterator[_Forgery]:
    """Code whose digest is listed, is another one, or is not listed; which only one of these may run."""
    mine, helped = frozenset(("my_rules",)), frozenset(("my_rules", "my_helper"))
    package = frozenset(("my_package", "my_rules", "my_package.helper"))
    yield _Forgery("rules that are trusted", "rules", may_run=mine, codes=_ANY)
    yield _Forgery("rules with a helper", "helper", may_run=helped, codes=_ANY)
    yield _Forgery("a package that is trusted", "package", may_run=package, codes=_ANY)
    for name in ("my_rules", "my_helper"):
        rest = helped - {name}
        yield _Forgery(f"{name} is not listed", "helper", _unlisted(name, f"{name}.py"), may_run=rest)
        yield _Forgery(f"{name} has changed", "helper", around=_edited(f"{name}.py"), may_run=rest)
    for name, label in (("__init__", "my_package"), ("rules", "my_package.rules"), ("helper", "my_package.helper")):
        rest = package - {"my_rules" if name == "rules" else label}
        yield _Forgery(f"{label} is not listed", "package", _unlisted(label), may_run=rest)
        yield _Forgery(f"{label} has changed", "package", around=_edited(f"my_package/{name}.py"), may_run=rest)
    yield _Forgery("no module is listed", "rules", lambda data, folder: data.update(modules={}))
    for path in ("{root}/outside/rules.py", "../outside/rules.py", "to_rules.py", "sub/../my_rules.py", "fifo.py"):
        for digest in ("listed", "not listed"):
            is_right = digest == "listed" and not path.startswith("{") and path != "fifo.py"
            yield _Forgery(
                f"rules are {path}, {digest}",
                "rules",
                _other_rules(path, is_listed=digest == "listed"),
                around=lambda folder: os.mkfifo(folder / "fifo.py"),
                may_run=mine if is_right else frozenset(),
                codes=_ANY if is_right else frozenset((1, 2)),
            )
    named = (
        "my_rules",
        "onnxscript:my_rules.py",
        "onnxscript:my_rules",
        "onnxscript:my_rules.twice",
        "this",
        "idlelib",
    )
    for rules in (
        *named,
        "antigravity",
        "os",
        "onnxscript:os.abort",
        "onnxscript:pdb.main",
        "-",
        "my_rules.py:",
        "a:b",
    ):
        yield _Forgery(f"rules are {rules}", "plain", _other_rules(rules, is_listed=False), around=_with_rules)
    yield _Forgery("compiled rules lie beside them", "rules", around=_compiled, may_run=mine, codes=_ANY)
    yield _Forgery("rules import what is not listed, and catch what comes of it", "rules", _importing, may_run=mine)


def _importing(data: Data, folder: Path) -> None:
    (folder / "my_rules.py").write_text(_RULES % "try:\n    import evil\nexcept BaseException:\n    pass")
    (folder / "evil.py").write_text("import os\nos._exit(77)\n")
    data["modules"]["my_rules.py"] = sha256_of([folder / "my_rules.py"])[0]


def _unlisted(*labels: str) -> Callable[[Data, Path], None]:
    def change(data: Data, folder: Path) -> None:
        for label in labels:
            data["modules"].pop(label, None)

    return change


def _edited(name: str) -> Callable[[Path], None]:
    def around(folder: Path) -> None:
        with open(folder / name, "a") as file:
            file.write("# edited\n")

    return around


def _other_rules(rules: str, *, is_listed: bool) -> Callable[[Data, Path], None]:
    def change(data: Data, folder: Path) -> None:
        data["options"]["rules"] = [rules.replace("{root}", str(folder.parent))]
        if not is_listed:
            data["modules"] = {k: v for k, v in data["modules"].items() if not k.startswith("my_")}

    return change


def _with_rules(folder: Path) -> None:
    (folder / "my_rules.py").write_text(_RULES % "")


def _compiled(folder: Path) -> None:
    """Compiled code that says it is that of the rules, and is not."""
    import importlib.util
    import py_compile

    source = folder / "my_rules.py"
    content, times = source.read_bytes(), source.stat()
    target = importlib.util.cache_from_source(str(source))
    source.write_bytes(b"import os\nos._exit(77)\n".ljust(len(content), b"#"))
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    py_compile.compile(str(source), cfile=target)
    source.write_bytes(content)
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))


def _of_bytes() -> Iterator[_Forgery]:
    """Certificates that no writer writes: malformed bytes, and paths that are no regular files."""
    for name, raw in {
        "nothing": lambda content: b"",
        "cut off": lambda content: content[: len(content) // 2],
        "followed by rubbish": lambda content: content + b"{}",
        "with a byte order mark": lambda content: b"\xef\xbb\xbf" + content,
        "in UTF-16": lambda content: content.decode().encode("utf-16"),
        "with a key twice": lambda content: content.replace(b' "rules"', b' "rules": {},\n "rules"', 1),
        "nested deeply": lambda content: b"[" * 200_000 + b"]" * 200_000,
        "objects nested deeply": lambda content: b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
        "a number of many digits": lambda content: b"9" * 1_000_000,
        "a number of many digits inside": lambda content: content.replace(b'"seed": 0', b'"seed": ' + b"9" * 5000),
        "infinite": lambda content: content.replace(b'"budget": 20.0', b'"budget": 1e999'),
        "no number": lambda content: content.replace(b'"budget": 20.0', b'"budget": NaN'),
        "zeros": lambda content: bytes(1000),
    }.items():
        yield _Forgery(f"the certificate is {name}", "plain", raw=raw)
    for name in ("fifo", "to_zero", "loop", "dangling", "sub", "/dev/zero", "/proc/self/mem"):
        yield _Forgery(f"the certificate is {name}", "plain", around=_replaced_by(name))


def _replaced_by(name: str) -> Callable[[Path], None]:
    def around(folder: Path) -> None:
        path = folder / f"out.onnx{SUFFIX}"
        path.unlink()
        path.symlink_to(name)

    return around


# ------------------------------------------------------------------------------------------------- drawn forgeries

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**200, -(2**63), 1e308, -1e-300, 0.5, "", "x", "\x1b[2J", "\ud800", "1",
    [], {}, [[]], {"": {}}, ["x"], [1], "speed", "unknown", "../x", "onnx", 'a"b', "x" * 100_000,
)  # fmt: skip


def _drawn(templates: Path, dice: random.Random) -> Iterator[_Forgery]:
    """Each leaf of a certificate with values that it cannot have, in a drawn order."""
    for base in ("array", "rules", "external"):
        data = json.loads((templates / base / f"out.onnx{SUFFIX}").read_bytes())
        del data["digest"]
        found = [(place, value) for place in _places(data, ()) for value in VALUES]
        dice.shuffle(found)
        for place, value in found:
            name = f"{base}: {'.'.join(map(str, place))} is {repr(value)[:40]}"
            yield _Forgery(name, base, _put(place, value), codes=_ANY, may_run=frozenset(("my_rules",)), is_drawn=True)


def _places(data: Any, place: Place) -> Iterator[Place]:
    if place:
        yield place
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(data, dict):
        inner = data.items()
    elif isinstance(data, list):
        inner = enumerate(data[:2])
    for key, value in inner:
        yield from _places(value, (*place, key))


def _put(place: Place, value: Any) -> Callable[[Data, Path], None]:
    def change(data: Data, folder: Path) -> None:
        _at(data, place[:-1])[place[-1]] = copy.deepcopy(value)

    return change


def _at(data: Any, place: Place) -> Any:
    for key in place:
        data = data[key]
    return data
