"""From a certificate back to its result: the rewriting is repeated, and its checks as well."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxrewrite import io
from onnxrewrite.certificate.comparison import other_checks, other_rewrite
from onnxrewrite.certificate.record import (
    Certificate,
    Files,
    RuleRecord,
    changed,
    read,
)
from onnxrewrite.certificate.trust import Asked, some_rules
from onnxrewrite.certificate.writing import certificate
from onnxrewrite.checks.rewrite_log import Sides, Verdicts
from onnxrewrite.compiler import run
from onnxrewrite.compiler.loop import Progress
from onnxrewrite.compiler.request import CheckLevel, Request
from onnxrewrite.compiler.result import Result
from onnxrewrite.errors import CheckError, ModelError, UsageError
from onnxrewrite.proof import require_prover
from onnxrewrite.rewrite import registry
from onnxrewrite.rewrite.fingerprint import Fingerprint, fingerprint
from onnxrewrite.rewrite.rule import Rule
from onnxrewrite.rewrite.source import guarded
from onnxrewrite.system import temporary
from onnxrewrite.system.arrays import Feeds
from onnxrewrite.system.digests import array_digest, sha256_of


@dataclass(frozen=True)
class Repeated:
    """The result of repeating a rewriting.

    Attributes:
        then: The certificate.
        now: The certificate as it would be written now.
        versions: The versions that have changed, one line each.
        result: The result of the repeated run.
    """

    then: Certificate
    now: Certificate
    versions: tuple[str, ...]
    result: Result


class Original:
    """The subject of a certificate: the input, the output if it is there, and the rules, all of it as it was.

    Code that the certificate names is run when something is repeated, if ``trust`` says so and it is what it was.

    Args:
        path: The certificate.
        source: The input; where the certificate says it is, without it.
        output: The output, likewise.
        rules: Rule files and packages in place of those that the certificate names.
        trust: True if rule files and packages that the certificate names may be run; if None, those that have been run
            in this process may.

    Raises:
        ModelError, UsageError: The certificate, the input or the output cannot be used; it names code, and is not
            trusted.
        CheckError: The input or the output is not what it was.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        source: str | os.PathLike[str] | None = None,
        output: str | os.PathLike[str] | None = None,
        rules: Sequence[str] = (),
        *,
        trust: bool | None = None,
    ):
        self.where = os.fspath(path)
        self.then = read(path)
        self._asked = Asked(self.where, self.then)
        recorded = self.then.input
        if source is None and recorded is None:
            raise UsageError(f"{self.where}: the model came from no file; give it with --input")
        if self.then.output is None:
            raise UsageError(f"{self.where}: the result was not written to a file, so there is nothing to compare with")
        self.rules, self._gate = self._asked.rules(rules, trust=trust)
        self.source = Path(source or self._asked.file(recorded.path if recorded else "", "--input"))
        self.written = self.then.output
        self.output = Path(output or self._asked.file(self.written.path, "A and B"))
        if recorded is not None:
            self._same_files("the input", self.source, recorded)
        if os.path.exists(self.output):
            self._same_files("the output", self.output, self.written)

    def replay(self, progress: Progress | None = None) -> Repeated:
        """Repeat the rewriting without the checks: what they turned down stays undone.

        Raises:
            UsageError, RuleError: The rules cannot be used.
            CheckError: A rule is not what it was, what comes out is not, or a proof does not hold.
        """
        repeated = self._repeat("off", self._verdicts(checks=False), {}, progress)
        self._replay_proofs()
        return repeated

    def _replay_proofs(self) -> None:
        """Give the goals of all proofs to the solver again."""
        if not self.then.proofs:
            return
        require_prover()
        from onnxrewrite.proof.replaying import failing

        for digest, script in self.then.proofs.items():
            reason = failing(script, digest)
            if reason:
                raise CheckError(f"{self.where}: the proof {digest[:16]} does not hold: {reason}")

    def recheck(self, inputs: Feeds | None = None, progress: Progress | None = None) -> tuple[Repeated, list[str]]:
        """Repeat the rewriting with all its checks, on the same seed; and what these say otherwise now.

        Args:
            inputs: The arrays that were given for the checks.
            progress: As for ``apply``.

        Raises:
            ModelError: The output is not there.
            UsageError, RuleError, CheckError: As for ``replay``; ``inputs`` must be what they were, too.
        """
        if not os.path.exists(self.output):
            raise ModelError(f"{self.output}: no such file, and it is the output that {self.where} tells of")
        self._same_arrays(inputs or {})
        level = self.then.options.check
        if level == "off":
            raise UsageError(f"{self.where}: nothing was checked (--check off), so nothing can be checked again")
        repeated = self._repeat(level, self._verdicts(checks=True), inputs or {}, progress)
        return repeated, list(other_checks(repeated.then, repeated.now))

    def arrays(self) -> dict[str, Path]:
        """The files of the arrays that were given for the checks, by input; without those that came from no file."""
        recorded = self.then.options.inputs.items()
        named = {name: each.path for name, each in recorded if each.path is not None}
        return {name: self._asked.file(path, f"--input {name}=FILE.npy") for name, path in named.items()}

    def _same_arrays(self, inputs: Feeds) -> None:
        recorded = {name: each.sha256 for name, each in self.then.options.inputs.items()}
        for name in changed(recorded, {n: array_digest(a) for n, a in inputs.items()}):
            if name not in inputs:
                raise UsageError(f"{self.where}: the array for input {name} is needed: --input {name}=FILE.npy")
            raise CheckError(f"{self.where}: the array for input {name} is not the one that was used")

    def _same_files(self, what: str, path: Path, then: Files) -> None:
        names = {Path(then.path).name: path.name}  # the model itself may be called otherwise now
        paths = {name: path.parent / names.get(name, name) for name in then.sha256}
        now = dict(zip(paths, sha256_of(paths.values()), strict=True))
        for name in changed(then.sha256, now):
            overwritten = what == "the input" and self.then.output is not None and then.path == self.then.output.path
            hint = "; the output has overwritten it, give it with --input" if overwritten else ""
            raise CheckError(f"{self.where}: {what} has changed: {paths[name]} is another file now{hint}")

    def _verdicts(self, *, checks: bool) -> Verdicts:
        """The rewrites that were turned down: for their speed, and, if these are not repeated, by the ``checks``."""
        found: dict[str, dict[Sides, str]] = {"site": {}, "speed": {}}
        for each in self.then.undone:
            record = self.then.sites.get(each.site or "")
            if record is not None:
                sides = (each.rule, each.value), tuple(record.before), tuple(record.after)
                found[each.by][sides] = each.reason
        model = {(u.rule, u.value): u.reason for u in self.then.undone if u.by == "model"}
        slow = {u.rule: u.reason for u in self.then.undone if u.by == "speed" and u.site is None}
        level = self.then.speed.level if self.then.speed is not None else "all"
        if checks:
            return Verdicts(losses=found["speed"], slow=slow, level=level)
        return Verdicts(found["site"], model, found["speed"], slow, level)

    def _repeat(self, level: CheckLevel, verdicts: Verdicts, inputs: Feeds, progress: Progress | None) -> Repeated:
        """Rewrite again, and compare what comes out."""
        registry.load()  # plugins are the user's own
        with guarded(self._gate):
            result = self._rewritten(level, verdicts, inputs, progress)
        now = self._written_again(result)
        told = [
            f"{k} {self.then.versions.get(k)} → {now.versions.get(k)}"
            for k in changed(self.then.versions, now.versions)
        ]
        difference = self._difference(now)
        if difference is not None:
            raise CheckError("; ".join([f"{self.where}: {difference}", *[f"versions: {', '.join(told)}"] * bool(told)]))
        return Repeated(self.then, now, tuple(told), result)

    def _rewritten(self, level: CheckLevel, verdicts: Verdicts, inputs: Feeds, progress: Progress | None) -> Result:
        then = self.then.options
        request = Request(
            rules=self.rules,
            without=self._others(),
            target=then.target,
            opset=then.opset,
            dims=then.dims,
            inputs=inputs,
            check=level,
            seed=then.seed,
            lower=then.lower,
            threads=then.threads,
            budget=then.budget,
            named_sums=then.named_sums,
            assume=then.assume,
            only_proved=then.only_proved and level != "off",
        )
        return run.apply(self.source, request, progress=progress, verdicts=verdicts)

    def _written_again(self, result: Result) -> Certificate:
        """The certificate of the output, written in a folder that is gone afterwards, under names of our own."""
        name = Path(self.written.path).name
        location = next((each for each in self.written.sha256 if each != name), None)
        with temporary.folder() as folder:
            target = folder / "output" / "model.onnx"
            target.parent.mkdir()
            io.save(result.model, target, location=location)
            paths = [target, *(path for path in target.parent.iterdir() if path != target)]
            then = dict(zip((Path(name), Path(location or f"{name}.data")), paths, strict=False))
            return certificate(result, self._asked.folder, self.output, then)

    def _difference(self, now: Certificate) -> str | None:
        assert now.output is not None
        names = list(changed(self.written.sha256, now.output.sha256))
        rewrite = other_rewrite(self.then, now)
        if not names and rewrite is None:
            return None
        reason = rewrite or "although every rewrite is the same"
        return f"the output differs: {names[0]}, {reason}" if names else f"the output is the same, but {reason}"

    def _others(self) -> list[str]:
        """The rules that did not take part; those that did are what they were."""
        try:
            library = registry.load(self.rules)
        finally:
            self._gate.raise_refusal()
        known = {rule.name: rule for rule in library}
        for name, then in self.then.rules.items():
            if name not in known:
                raise CheckError(f"{self.where}: rule {name} is gone; give the file that it is in with --rules")
            self._same_rule(known[name], fingerprint(known[name]), then)
        return [name for name in known if name not in self.then.rules]

    def _same_rule(self, rule: Rule, now: Fingerprint, then: RuleRecord) -> None:
        if now.sha256 == then.sha256:
            return
        before = {name: self.then.modules.get(name, "") for name in then.modules}
        where = ", ".join(changed(before, now.modules))
        named = [n for n, each in self.then.rules.items() if each.modules == then.modules] if where else [rule.name]
        raise CheckError(f"{self.where}: {some_rules(named)} changed{f' in {where}' if where else ''}")
