"""Bounds as Clip, Min and Max, or Relu."""

from __future__ import annotations

from benchmarks.spellings.registry import spelling
from benchmarks.spellings.script import Script


@spelling("Relu")
def relu_as_bound(s: Script) -> bool:
    """Relu(x) as Max(x, 0), or Clip(x, 0)."""
    x = s.place.inputs[0]
    assert x is not None
    return s.put(s.new(s.rng.choice(("Max", "Clip")), x, s.constant(0.0, x)))


@spelling("Clip")
def clip_as_min_max(s: Script) -> bool:
    """Clip(x, a, b) as Min(Max(x, a), b), or the other way round."""
    x, low, high = (*s.place.inputs, None, None)[:3]
    bounds = [(op, v) for op, v in (("Max", low), ("Min", high)) if v is not None]
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
