"""Where the models lie that are not part of the repository; tests that need them are skipped where they are absent."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
SHARED_MODELS = SHARED / "models"
