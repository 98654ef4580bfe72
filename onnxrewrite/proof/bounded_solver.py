"""Solvers that give up in time."""

from __future__ import annotations

import z3

from onnxrewrite.proof.index_terms import Term

_STEPS = 2e7
"""Of z3's steps there are up to so many in a second, and a tenth of them at least."""


def solver_for(context: Term, seconds: float) -> Term:
    """A solver that gives up after so many seconds, or the steps that there can be in them: now and then z3 5.4
    forgets the time and goes on for minutes."""
    solver = z3.Solver(ctx=context)
    solver.set("timeout", int(1000 * seconds))
    solver.set("rlimit", int(_STEPS * seconds))
    return solver
