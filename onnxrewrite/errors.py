"""What a user can be told.

Every error that a user can meet is one line: what is wrong, where, and what to do.  The command line prints
it and exits with ``exit_code``; nothing else is ever shown to a user as a traceback.
"""

from __future__ import annotations

import re


class OnnxRewriteError(Exception):
    """Base of everything a user can get told.  ``exit_code`` is the command line's exit status."""

    exit_code = 2


class UsageError(OnnxRewriteError):
    """An argument that cannot be used: an unknown rule, a bad ``--dim``, a target this machine lacks."""


class ModelError(OnnxRewriteError):
    """A model that cannot be read or is not valid, or a file that cannot be written."""


class RuleError(OnnxRewriteError):
    """A rule, a rule file or a plugin that cannot be used."""


class CheckError(OnnxRewriteError):
    """A check failed and nothing was written."""

    exit_code = 1


def one_line(error: BaseException | str, limit: int = 300) -> str:
    """The first informative line of an error, without ORT's boilerplate and file positions."""
    text = " ".join(str(error).split())
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", text)
    text = re.sub(r"/\S*?/(onnxruntime/\S+?:\d+) ", "", text)
    text = text or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"
