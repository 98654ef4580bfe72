"""Files of plots: the formats, and whether one can be written."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from onnxrewrite.errors import ModelError, UsageError

FORMATS = (".png", ".svg", ".pdf")


def plottable(path: Path) -> None:
    """UsageError if no plot can be written there: matplotlib is missing, or the name says no format."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot {path}: the name must end in {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib; install it with pip install 'onnxrewrite[plot]'")


def save_plot(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib; ModelError if that cannot be done."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise ModelError(f"--plot {path}: cannot be written: {error.strerror or error}") from None
