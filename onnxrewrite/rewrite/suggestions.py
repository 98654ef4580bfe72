"""Names that somebody has mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], otherwise: str = "; see `onnxrewrite rules`") -> str:
    """The end of an error about an unknown name: what may have been meant; ``otherwise`` where nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)
    return f"; did you mean {' or '.join(near)}?" if near else otherwise
