"""Wrong rules made out of right ones, one change each.

    for mutant in mutants(rule, observed(rule, library, count=30)):
        wrong, tally = mutate(rule, mutant)  # in a process of its own, for terms are changed where they are
        fuzz(wrong, ...)

A mutant is data: which rule, what kind of mistake, what was changed in words, and the change.  What can be changed on
the tape, and which guards there are, is observed while the right rule runs; what can be changed in the pattern is read
off it.
"""

from benchmarks.mutants.hooks import Tally
from benchmarks.mutants.making import mutants, sampled
from benchmarks.mutants.mutant import KINDS, Mutant
from benchmarks.mutants.mutating import mutate
from benchmarks.mutants.observing import Observed, observed

__all__ = ["KINDS", "Mutant", "Observed", "Tally", "mutants", "mutate", "observed", "sampled"]
