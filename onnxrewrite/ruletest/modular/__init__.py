"""Exact evaluation of small graphs in a finite ring: sides of a rewrite that are equal by algebra agree in every bit.

Float tensors become elements of the integers modulo p³, p = 1559; what depends on no float input (shapes, indices,
masks, weights) is computed as it is.  Sums, products, data movement, division and the laws of exp and sqrt are exact,
so one random input refutes a wrong rewrite with a probability near one, and rounding hides nothing.

Why p³ and not 2^64.  Modulo 2^64 exactly the odd numbers have inverses, and the sum of two odd numbers is even.  So
1/(1 + exp(-x)), ½·x, the mean of an even number of elements and the softmax over an even number of them do not exist
there, whatever exp is, as long as exp(x)·exp(-x) = 1.  Modulo p³ the same construction works: the units are all that p
does not divide, exp(x) = (1 + p)^x has the order p² and so is a homomorphism that can be applied again and again, and
2, n and 1 + exp(x) are units.  p = 1559 is such that -1 is no square and 2, 3, ..., 13 are, so half of the units have a
root that is a square itself, sqrt is multiplicative as that of reals is, and roots of simple constants exist.  A field
would have no exp but once: its exponents are elements of another ring.

Order.  No order of a finite ring goes with its arithmetic, so there are three.  A total order has the laws of lattices;
the quadratic character as a sign has those of sums, products and positivity.  What is equal in either is equal.  Where
neither tells, small integers are fed and elements are read as the small fractions that they are, whose order has every
law; what differs there differs.

What ``differs`` means: no law of real numbers that rules use makes the two sides equal.  Where one might (a constant
that was rounded, or stands for infinity; a function that is only a hash), a difference is reported as ``not
applicable``.  What ``equal`` means: the two sides agree as formulas.  Rounding, overflow, NaN and the dtypes of floats
are not looked at.  Differences between values of exp are multiples of p, so a product of three of them is 0, and a
difference inside it is not seen.
"""

from onnxrewrite.ruletest.modular import (  # noqa: F401  (register operators)
    elementwise,
    grid_rounding,
    linear,
    reduction,
)
from onnxrewrite.ruletest.modular.equality import RingCheck, check_ring

__all__ = ["RingCheck", "check_ring"]
