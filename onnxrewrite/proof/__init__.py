"""Translation validation: a proof that two graphs of one interface compute the same, for all inputs and all sizes.

    from onnxrewrite.proof.validation import prove
    found = prove(before, after)        # Proof, Refutation or Unknown

A tensor is its sizes, integers of z3 some of which are names, and a function from an index to a term (``tensors``).
What operators compute is one table (the modules ``semantics_*``).  Three domains say what an element is, and are tried
in this order: *uninterpreted* (``domains``), in which an operator on elements is any function of its operands, so that
what is proved of moves of data holds to the bit whatever the dtype; *bitwise* (``ieee_numbers``), IEEE numbers and
integers that wrap around; *reals*, in which sums of any length and products are those of mathematics
(``polynomials``), and rounding is bounded a priori (``rounding_bounds``).

The original is taken to run.  That the replacement then runs as well is part of what is proved.

z3 is an optional extra; ``require_prover`` says so in one line.
"""

from __future__ import annotations

import importlib.util

from onnxrewrite.errors import UsageError


def has_prover() -> bool:
    """True if z3 is installed."""
    return importlib.util.find_spec("z3") is not None


def require_prover() -> None:
    """Raise ``UsageError`` in one line if z3 is not installed."""
    if not has_prover():
        raise UsageError("a proof needs z3-solver, which is not installed; pip install 'onnxrewrite[prove]'")
