"""Errors as users see them.

Every error that a user can meet is one line: what is wrong, where, and what to do.  The command line prints
it and exits with ``exit_code``; nothing else is ever shown to a user as a traceback.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


class OnnxRewriteError(Exception):
    """Base of everything a user can get told.  ``exit_code`` is the command line's exit status."""

    exit_code = 2


class UsageError(OnnxRewriteError):
    """An argument that cannot be used: an unknown rule, a bad ``--dim``, a target this machine lacks."""


class ModelError(OnnxRewriteError):
    """A model that cannot be read or is not valid, or a file that cannot be written."""


class RuleError(OnnxRewriteError):
    """A rule, a rule file or a plugin that cannot be used."""


class CostError(OnnxRewriteError):
    """A cost model raised an error, or gave something else than a cost."""


class CheckError(OnnxRewriteError):
    """A check failed and nothing was written."""

    exit_code = 1


NOT_RUN = (UsageError, ModelError, MemoryError)
"""Exceptions for a model that cannot be run here: inputs that cannot be made, a model that does not open, too little
memory.  Where they only prevent a check or a measurement, the reason is reported and the work goes on."""


class IncompleteError(OnnxRewriteError):
    """The result is right and was written; something that goes with it, a certificate or a report, was not.

    Args:
        done: A sentence that says what was written.
        lost: For each of the others, the reason why it was not.
        exit_code: The command line's exit status.
    """

    def __init__(self, done: str, lost: Sequence[str], exit_code: int):
        super().__init__(f"{'; '.join(lost)}; {done}")
        self.lost = lost
        self.exit_code = exit_code


class Rest:
    """The parts that go with a written result; a failure of one affects neither the others nor the result.

    Args:
        done: A sentence that says what is done.
    """

    def __init__(self, done: str):
        self._done = done
        self._errors: dict[str, Exception] = {}

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        """One part, which may come to nothing."""
        try:
            yield
        except Exception as error:
            self._errors[what] = error

    def lacks(self, what: str) -> bool:
        """True if a part failed."""
        return what in self._errors

    def incomplete(self) -> IncompleteError | None:
        """An error that names the parts that failed; None if none did."""
        if not self._errors:
            return None
        lost = [each for what, error in self._errors.items() for each in _lost(what, error)]
        made = IncompleteError(self._done, lost, max(map(exit_code, self._errors.values())))
        made.__cause__ = next(iter(self._errors.values()))
        return made

    def end(self) -> None:
        """Raise ``incomplete()``, if there is anything to say."""
        error = self.incomplete()
        if error is not None:
            raise error


def _lost(what: str, error: Exception) -> Sequence[str]:
    if isinstance(error, IncompleteError):
        return error.lost
    return [str(error) if isinstance(error, OnnxRewriteError) else f"{what} was not written: {reason(error)}"]


def exit_code(error: BaseException) -> int:
    """The command line's exit status for an error: 2 where a file is the cause, 3 where we are."""
    if isinstance(error, OnnxRewriteError):
        return error.exit_code
    return 2 if isinstance(error, OSError) or is_out_of_memory(error) else 3


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error is a lack of memory: Python's own, or protobuf's, which could not serialize a message."""
    protobuf = sys.modules.get("google.protobuf.message")  # which takes longer to import than a command to start
    return isinstance(error, MemoryError) or (protobuf is not None and isinstance(error, protobuf.EncodeError))


def reason(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, OnnxRewriteError):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "memory does not suffice" if is_out_of_memory(error) else bug(error)


def bug(error: BaseException) -> str:
    """An error that nobody should have met, in one line."""
    text = str(error).strip()
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"internal error: {what[:500]}; this is a bug: please report it with what --debug shows"


class StoppedError(SystemExit):
    """A signal asked us to stop.  A SystemExit, for libraries let that one pass."""


class ExitCalledError(Exception):
    """Third-party code tried to end the process; the message names the exception that it raised."""


@contextmanager
def foreign() -> Iterator[None]:
    """Run third-party code inside: an attempt of it to end the process becomes an ordinary error.

    Raises:
        ExitCalledError: It called ``sys.exit``, or raised something that is not an ``Exception``.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit, StoppedError):
        raise
    except BaseException as error:
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ExitCalledError(told).with_traceback(error.__traceback__) from error


def printable(text: str, keep: str = "") -> str:
    """Text that a terminal can only show: whatever else it would do something with is spelled as JSON does.

    That is control characters, line and paragraph separators, what changes the direction of writing, and halves of
    characters; a name in a model can hold all of these.  ``keep``: characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def printable_data(data: object) -> Any:
    """Plain data with every text in it ``printable``."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, Mapping):
        return {printable_data(key): printable_data(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [printable_data(each) for each in data]
    return data


_LOOKED_AT = 4000
"""Characters of an error: it may quote a name of a million."""


def one_line(error: BaseException | str, limit: int = 300) -> str:
    """The first informative line of an error, without ORT's boilerplate and file positions."""
    text = " ".join(str(error)[:_LOOKED_AT].split())
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", text)
    text = re.sub(r"/\S*?/(onnxruntime/\S+?:\d+) ", "", text)
    text = text or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def described(error: Exception, source: str = "") -> str:
    """An exception in one line, with the last line of the file ``source`` that it came through."""
    text = " ".join(str(error).split())
    lines = [n for frame, n in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == source]
    place = f" at {os.path.basename(source)}:{lines[-1]}" if lines else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"
