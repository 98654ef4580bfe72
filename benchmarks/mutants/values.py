"""Other values in the place of right ones: numbers, words, arrays.  Nothing here is random."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxrewrite.ruletest.metamorphic.mutations import COUNTS, WORDS

ELEMENT, ALL, REVERSED, LEFT_OUT = "off in one element", "off", "in reverse order", "left out"


def variants(name: str, value: Any) -> list[str]:
    """In what ways a value of this parameter can be wrong."""
    array = np.asarray(value)
    if array.dtype.kind in "OSU" and not isinstance(value, str):
        return []
    if isinstance(value, str):
        return [ALL] if name in WORDS else []
    if array.ndim == 0 or array.size == 1:
        return [ALL]
    found = [] if array.dtype.kind != "f" else [ALL]
    found += [ELEMENT] if array.size and name != "perm" else []
    return found + ([REVERSED] if not np.array_equal(array, _reversed(array)) else [])


def other(name: str, value: Any, variant: str) -> Any:
    """A wrong value of the same type and shape; the value itself where it cannot be wrong in that way."""
    if variant not in variants(name, value):
        return value
    if isinstance(value, str):
        words = WORDS[name]
        return words[(words.index(value) + 1) % len(words)] if value in words else words[0]
    array = np.asarray(value)
    if variant == REVERSED:
        wrong = _reversed(array)
    else:
        wrong = _off(name, array)
        if variant == ELEMENT:
            kept = array.ravel().copy()
            kept[-1] = wrong.ravel()[-1]
            wrong = kept.reshape(array.shape)
    return wrong if isinstance(value, np.ndarray) else type(value)(wrong.tolist())


def _reversed(array: Any) -> Any:
    return array.ravel()[::-1].reshape(array.shape)


def _off(name: str, array: Any) -> Any:
    """Everything off: floats by 7 % and a bit, switches turned, axes and indices by one."""
    if name == "to":
        return np.where(array == int(ir.DataType.FLOAT), int(ir.DataType.FLOAT16), int(ir.DataType.FLOAT))
    if array.dtype == np.bool_:
        return ~array
    if array.dtype.kind not in "iu":
        return (array.astype(np.float64) * 1.07 + 0.03).astype(array.dtype)
    if name in ("axis", "axes"):
        return array - 1
    if name in COUNTS or array.ndim:
        return array + 1
    return np.where((array == 0) | (array == 1), 1 - array, array + 1)
