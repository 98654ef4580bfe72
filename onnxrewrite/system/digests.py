"""Digests of files and arrays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from onnxrewrite.errors import ModelError
from onnxrewrite.system import files


def sha256_of(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The digests of files, which are read piece by piece and side by side; ModelError if one cannot be read."""
    wanted = list(paths)
    try:
        with ThreadPoolExecutor(max_workers=2) as pool:
            return list(pool.map(_sha256_of, wanted))
    except RuntimeError:  # no memory for a thread
        return [_sha256_of(path) for path in wanted]


def _sha256_of(path: str | os.PathLike[str]) -> str:
    try:
        with files.open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from None


def array_digest(array: object) -> str:
    """The digest of dtype, shape and elements of an array."""
    import numpy as np

    made = np.asarray(array)
    elements = repr(made.tolist()).encode() if made.dtype == object else made.tobytes()
    return hashlib.sha256(f"{made.dtype} {list(made.shape)} ".encode() + elements).hexdigest()
