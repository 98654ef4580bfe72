"""Archives of models."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def pack(path: Path, files: Mapping[str, bytes]) -> None:
    """An archive of the same bytes whenever it is made: what is equal in several files is in it about once."""
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
