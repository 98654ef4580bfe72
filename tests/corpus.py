"""Where models lie, and which of them the quick tests ask about; those outside the repository may be absent."""

from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
SHARED_MODELS = SHARED / "models"
SHARED_FILES = sorted(SHARED_MODELS.glob("*/*.onnx"))
GOLDEN_FILES = sorted((ROOT / "golden_models").glob("*/model.onnx"))


def few(paths: Iterable[Path], every: int = 5) -> list[object]:
    """Models as parameters: the quick tests ask about every fifth, CI about all."""
    return [
        pytest.param(
            path,
            id=path.parent.name if path.stem == "model" else path.stem,
            marks=[pytest.mark.slow] if number % every else [],
        )
        for number, path in enumerate(paths)
    ]
