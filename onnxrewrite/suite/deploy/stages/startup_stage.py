"""Memory of a session, and files that open faster: what ONNX Runtime has optimized already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import onnxruntime as ort

from onnxrewrite.errors import ModelError, one_line
from onnxrewrite.runtime.session import ORT_SUFFIX
from onnxrewrite.runtime.settings import Setting, options_of
from onnxrewrite.suite.deploy.artifact import STARTUP, STARTUP_DATA, Artifact
from onnxrewrite.suite.deploy.stage import Context, NothingToDo, Stage

Form: TypeAlias = Literal["onnx", "ort", "prepacked"]
"""``onnx``: the optimized model; ``ort``: the same in ONNX Runtime's format; ``prepacked``: the same with the weights
in a file of their own, in the layout in which products read them."""

_EXTERNAL_BYTES = "1024"
"""Weights from this size on lie in the file of their own."""


@dataclass(frozen=True, kw_only=True)
class Memory(Stage):
    """Options of the session that bear on memory."""

    name: ClassVar[str] = "memory"
    default: ClassVar[bool] = False

    def run(self, given: Artifact, context: Context) -> Iterator[Artifact]:
        """Each option by itself."""
        setting = given.setting
        for how, other in (
            ("without an arena", replace(setting, arena=False)),
            ("without a memory pattern", replace(setting, memory_pattern=False)),
            ("arena shrunk after each run", replace(setting, shrinks=True)),
            ("inputs and outputs bound", replace(setting, bound=True)),
        ):
            if other != setting:
                yield replace(given, setting=other, how=how)


@dataclass(frozen=True, kw_only=True)
class Startup(Stage):
    """Files that open faster.  They belong to this version of ONNX Runtime and to processors like this one.

    Attributes:
        forms: The forms to try.
    """

    name: ClassVar[str] = "startup"
    default: ClassVar[bool] = False
    forms: tuple[Form, ...] = ("onnx", "ort", "prepacked")

    def run(self, given: Artifact, context: Context) -> Iterator[Artifact]:
        """Each form; one that ONNX Runtime cannot write is left out with a note."""
        if given.setting.level == "disabled":
            raise NothingToDo("no optimization is asked for, so there is none to save")
        for form in self.forms:
            folder = context.folder / f"startup-{form}"
            folder.mkdir(exist_ok=True)
            try:
                path = saved(given.path, given.setting, form, folder)
            except ModelError as error:
                context.note(f"startup: {form}: {error}")
                continue
            yield replace(given, opened_as=path, how=f"opened as {path.name} ({form})")


def saved(model: Path, setting: Setting, form: Form, folder: Path) -> Path:
    """The file of a model as ONNX Runtime has optimized it, written to a folder.

    Raises:
        ModelError: ONNX Runtime cannot do so.
    """
    path = folder / f"{STARTUP}{ORT_SUFFIX if form == 'ort' else '.onnx'}"
    options = options_of(setting)
    options.optimized_model_filepath = str(path)
    entries = {
        "onnx": {},
        "ort": {"session.save_model_format": "ORT"},
        "prepacked": {
            "session.optimized_model_external_initializers_file_name": STARTUP_DATA,
            "session.optimized_model_external_initializers_min_size_in_bytes": _EXTERNAL_BYTES,
            "session.save_external_prepacked_constant_initializers": "1",
        },
    }[form]
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    try:
        ort.InferenceSession(str(model), options, providers=[setting.provider])
    except Exception as error:  # ORT raises a dozen classes, one a status code
        raise ModelError(f"ONNX Runtime cannot save it: {one_line(error)}") from error
    return path
