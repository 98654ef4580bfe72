"""Respelling: equal spellings of what a rule rewrites, and near misses of it.

For any rule, from its examples::

    found = seeds(rule, library)
    for each in spellings(found, 500):
        assert each.matched(), text.print_model(each.model)
    for each in near_misses(found, 500):
        assert each.wrong is None, (each.mistake, each.wrong)

``seeds`` gives every example a name for each node, shapes at which it runs, and other dtypes.  ``spellings`` varies
what the engine promises to absorb.  ``near_misses`` makes one mistake in a spelling; where the rule fires all the same,
what comes out is run beside what went in.
"""

from onnxrewrite.ruletest.metamorphic.mutants import NearMiss, near_misses
from onnxrewrite.ruletest.metamorphic.seeds import Seed, seeds
from onnxrewrite.ruletest.metamorphic.variants import Spelling, spellings

__all__ = ["NearMiss", "Seed", "Spelling", "near_misses", "seeds", "spellings"]
