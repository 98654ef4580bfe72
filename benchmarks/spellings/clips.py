"""Bounds as Clip, Min and Max, or Relu.

Where a bound is zero, Max and Min are no spelling of Relu or Clip: they change the sign of zero, which those keep.  Nor
is Clip(x, 0) one of Relu(x): it changes infinity.
"""

from __future__ import annotations

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


@spelling("Clip")
def clip_as_min_max(s: Script) -> bool:
    """Clip(x, a, b) as Min(Max(x, a), b), or the other way round."""
    x, low, high = (*s.place.inputs, None, None)[:3]
    bounds = [(op, v) for op, v in (("Max", low), ("Min", high)) if v is not None]
    if any(s.number(v) in (0, None) for _, v in bounds):
        return False
    if x is None or not bounds or (len(bounds) > 1 and not all(s.is_constant(v) for _, v in bounds)):
        return False
    s.rng.shuffle(bounds)
    for op, value in bounds:
        x = s.new(op, x, value)
    return s.put(x)


@spelling("Clip")
def clip_by_relu(s: Script) -> bool:
    """Clip(x, 0, b) as Min(Relu(x), b)."""
    x, low, high = (*s.place.inputs, None, None)[:3]
    if s.number(low) != 0 or not s.is_float(x):
        return False
    held = s.new("Relu", x)
    return s.put(s.new("Min", held, high) if high is not None else held)
