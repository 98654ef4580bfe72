"""Requests of a certificate that a stranger may have chosen: files that are read, and rules, which are code.

Files are named relative to the certificate.  Code that a certificate names is run only if the user says so, and only if
its digest is one that the certificate lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from onnxrewrite.certificate.record import Certificate
from onnxrewrite.errors import CheckError, OnnxRewriteError, UsageError
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.source import Gate

_INSTALLED = ("onnxscript:default", "onnxscript:ort_fusions")
"""Rules that come with a library which this program needs anyway."""


class Asked:
    """The files and the rules that a certificate asks for.

    Args:
        where: The certificate's file, for messages.
        then: The certificate.

    Attributes:
        folder: The folder of the certificate.
    """

    def __init__(self, where: str, then: Certificate):
        self.where = where
        self.folder = Path(where).parent
        self._then = then

    def file(self, path: str, option: str) -> Path:
        """A file that the certificate names; UsageError unless that is relative to it."""
        if Path(path).is_absolute() or not path or "\0" in path:
            raise UsageError(f"{self.where}: names {path!r}, which is no path relative to it; give {option}")
        return self.folder / path

    def rules(self, given: Sequence[str], *, trust: bool | None) -> tuple[list[str], Gate]:
        """The rules to load, and the gate through which they come.

        Args:
            given: Rules that the user names in place of those of the certificate.
            trust: True if the user wants code to be run that the certificate names; None to run only what has been run
                in this process.

        Raises:
            UsageError: The certificate names code, and is not trusted.
        """
        named = list(given) or self._code(trust)
        code = [registry.divided(r)[1] for r in named if r not in _INSTALLED]
        folders = [Path(rest).parent for rest in code if rest.endswith(".py")]
        packages = [rest for rest in code if not rest.endswith(".py")]
        return named, Gate(self._then.modules, folders, packages, self._refusal, lets_unknown=bool(given))

    def _code(self, trust: bool | None) -> list[str]:
        named = [moved(rules, lambda file: str(self.file(file, "--rules"))) for rules in self._then.options.rules]
        for rules in named:
            has_run = trust is None and registry.loaded(rules) is not None
            if not (trust or has_run or rules in _INSTALLED):
                raise UsageError(
                    f"{self.where}: would run the code of {rules}; give --trust to run it, or your own with --rules"
                )
        return named

    def _refusal(self, name: str, file: Path, is_listed: bool) -> OnnxRewriteError:
        if not is_listed:
            return UsageError(f"{self.where}: lists no digest of {file}, so it is not run; give your own with --rules")
        named = [rule for rule, each in self._then.rules.items() if name in each.modules]
        return CheckError(f"{self.where}: {some_rules(named)} changed in {name}: {file} is another file now")


def moved(rules: str, place: Callable[[str], str]) -> str:
    """The argument of ``--rules``, with the path of a rule file as ``place`` gives it; packages stay."""
    prefix, name = registry.divided(rules)
    if not rules.endswith(".py"):
        return rules
    return f"{prefix}:{place(name)}" if prefix else place(name)


def some_rules(names: Iterable[str]) -> str:
    """``rule gelu-erf and 3 more``."""
    first, *others = [*names] or ["file"]
    return f"rule {first}" + (f" and {len(others)} more" if others else "")
