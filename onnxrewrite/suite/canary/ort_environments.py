"""Environments with one version of ONNX Runtime each: made by ``venv`` and pip, kept in the cache folder."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from onnxrewrite.errors import ModelError, UsageError, one_line
from onnxrewrite.system import temporary
from onnxrewrite.system.arrays import Array, Feeds
from onnxrewrite.system.atomic import whole_folder

INSTALLED = "installed"
"""Stands for the version that this program runs on."""

_VERSION = re.compile(r"\d+(\.\d+){1,3}((a|b|rc|\.dev|\.post)\d+)?")
_LIMIT = 600.0
"""Seconds for pip."""


def python_with(version: str) -> Path:
    """The interpreter of an environment that has ONNX Runtime of a version, ``1.31`` or ``1.31.0``.

    It is made if there is none; of ``1.31``, the newest patch release at that time.

    Raises:
        UsageError: It is no version, or pip cannot get it.
    """
    if version == INSTALLED:
        return Path(sys.executable)
    if not _VERSION.fullmatch(version):
        raise UsageError(f"--ort {version}: write versions such as 1.31 or 1.31.0, or {INSTALLED}")
    tag = f"{sys.implementation.cache_tag}-{sys.platform}"
    folder = Path(platformdirs.user_cache_dir("onnxrewrite")) / "onnxruntime" / f"{version}-{tag}"
    python = Path("Scripts", "python.exe") if os.name == "nt" else Path("bin", "python")
    if not (folder / python).exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with whole_folder(folder) as made:
                venv.EnvBuilder(with_pip=True, symlinks=os.name != "nt").create(made)
                _install(made / python, version)
        except (OSError, subprocess.CalledProcessError) as error:
            if not (folder / python).exists():  # unless somebody else made it meanwhile
                raise UsageError(f"--ort {version}: no environment can be made: {one_line(error)}") from None
    return folder / python


def _install(python: Path, version: str) -> None:
    exact = version.count(".") >= 2 or not version.replace(".", "").isdecimal()
    wanted = f"onnxruntime=={version}{'' if exact else '.*'}"
    line = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    try:
        done = subprocess.run([*line, wanted, "numpy"], capture_output=True, text=True, timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--ort {version}: pip took longer than {_LIMIT:g} s; is the package index reachable?"
        ) from None
    if done.returncode:
        told = [text for text in done.stderr.splitlines() if text.startswith("ERROR")] or ["pip failed"]
        if "(from versions: none)" in done.stderr:
            raise UsageError(f"--ort {version}: the package index cannot be reached, from which pip gets {wanted}")
        raise UsageError(f"--ort {version}: pip cannot install {wanted}: {one_line(told[-1].removeprefix('ERROR: '))}")


@dataclass
class Environment:
    """A version of ONNX Runtime, and a process that runs on it; one that dies of a model is replaced.

    Attributes:
        asked: The version as it was asked for.
        python: The interpreter.
        folder: For arrays that go to and fro.
        version: Of ONNX Runtime.
        optimizers: Names that may be those of its optimizers.
    """

    asked: str
    python: Path
    folder: Path
    version: str = ""
    optimizers: tuple[str, ...] = ()
    _process: subprocess.Popen[str] | None = None
    _count: int = 0
    _script: Path = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._script = self.folder / "ort_worker.py"
        self._script.write_text(resources.files(__package__).joinpath("ort_worker.py").read_text(encoding="utf-8"))
        told = self.ask("version")
        if "failure" in told:
            self.close()
            raise UsageError(f"--ort {self.asked}: ONNX Runtime cannot be imported there: {one_line(told['failure'])}")
        self.version, self.optimizers = told["version"], tuple(told["optimizers"])

    @property
    def name(self) -> str:
        """The version, marked if it is the installed one."""
        return f"{self.version} ({INSTALLED})" if self.asked == INSTALLED else self.version

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """The answer to a request; ``failure`` in it says why there is none, also where the process died."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [str(self.python), "-I", str(self._script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "ORT_DISABLE_TELEMETRY": "1"},
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = process.wait()
            self.close()
            how = f"died of signal {-code}" if code < 0 else f"ended with status {code}"
            return {"failure": f"its process {how}"}
        found: dict[str, Any] = json.loads(line)
        return found

    def opened(
        self,
        model: Path,
        feeds: Path,
        *,
        level: str = "all",
        without: tuple[str, ...] = (),
        threads: int = 0,
        **more: Any,
    ) -> Opened:
        """A session of a model, which has run once.

        Args:
            model: Its file.
            feeds: The file of its inputs, ``save_arrays``.
            level: Of optimization.
            without: Optimizers that are disabled.
            threads: Within an operator; 0 leaves it to ONNX Runtime.
            more: ``outputs``: a file for the outputs; ``optimized``: one for the optimized model.
        """
        self._count += 1
        request = {"model": str(model), "feeds": str(feeds), "level": level, "without": list(without)}
        paths = {name: str(path) for name, path in more.items()}
        told = self.ask("open", number=self._count, threads=threads, **request, **paths)
        return Opened(self, self._count, told)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@dataclass(frozen=True)
class Opened:
    """A session in an environment, or the reason why there is none."""

    environment: Environment
    number: int
    told: Mapping[str, Any]

    @property
    def failure(self) -> str:
        """In one line; empty where the model runs."""
        return one_line(str(self.told["failure"])) if "failure" in self.told else ""

    @property
    def creation(self) -> tuple[float, float]:
        """Seconds that it took to open, on the wall and of the processor.

        Raises:
            ModelError: It did not open.
        """
        if self.failure:
            raise ModelError(f"ONNX Runtime {self.environment.version}: {self.failure}")
        return self.told["creation"]["wall"], self.told["creation"]["cpu"]

    def run(self, count: int) -> tuple[float, float]:
        """Seconds for one of so many runs, on the wall and of the processor.

        Raises:
            ModelError: It does not run any more.
        """
        told = self.environment.ask("run", number=self.number, count=count)
        if "failure" in told:
            raise ModelError(f"ONNX Runtime {self.environment.version}: {one_line(told['failure'])}")
        return told["wall"], told["cpu"]

    def close(self) -> None:
        """Free what it holds."""
        if not self.failure:
            self.environment.ask("close", number=self.number)


@contextlib.contextmanager
def environments(versions: list[str]) -> Iterator[list[Environment]]:
    """The environments of versions, each with a process, which are gone afterwards.

    Raises:
        UsageError: One cannot be made, or two are the same.
    """
    pythons = [python_with(version) for version in versions]
    made: list[Environment] = []
    with temporary.folder() as folder:
        try:
            for version, python in zip(versions, pythons, strict=True):
                made.append(Environment(version, python, folder))
            names = [each.name for each in made]
            if len(set(names)) < len(names):
                raise UsageError(f"--ort {','.join(versions)}: these are {', '.join(names)}; name each once")
            yield made
        finally:
            for each in made:
                each.close()


def save_arrays(path: Path, arrays: Feeds) -> None:
    """Write arrays by name to a file that the worker reads; those that numpy has no dtype for are left out."""
    kept = {
        name: value for name, value in arrays.items() if isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
    }
    numbered = {f"a{n}": value for n, value in enumerate(kept.values())}
    numbered["__names__"] = np.array(json.dumps(list(kept)))
    np.savez(path, **numbered)  # type: ignore[arg-type]


def load_arrays(path: Path) -> dict[str, Array]:
    """The arrays that the worker wrote, by name."""
    with np.load(path, allow_pickle=False) as file:
        names = json.loads(str(file["__names__"]))
        return {name: file[f"a{n}"] for n, name in enumerate(names) if f"a{n}" in file.files}
