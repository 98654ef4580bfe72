"""Proofs replayed: each goal of a script is given to the solver again, and must have no model."""

from __future__ import annotations

import hashlib

import z3

from onnxrewrite.proof.bounded_solver import solver_for

_END = "(reset)\n"
_SECONDS = 20.0


def failing(script: str, digest: str | None = None) -> str:
    """The reason why a script is no proof; empty if all of its goals have no model.

    Args:
        script: The script, as ``Proof.text`` writes it.
        digest: SHA-256 of it, where that is known.
    """
    if digest is not None and hashlib.sha256(script.encode()).hexdigest() != digest:
        return "the script was changed: its digest does not fit"
    for number, goal in enumerate(filter(str.strip, script.split(_END)), 1):
        context = z3.Context()
        solver = solver_for(context, _SECONDS)
        try:
            solver.from_string(goal)
        except z3.Z3Exception as error:
            return f"goal {number} cannot be read: {str(error).splitlines()[0]}"
        if solver.check() != z3.unsat:
            return f"goal {number} is not shown"
    return ""
