"""``3/50``: one part of a sweep that is shared out between machines that know nothing of each other."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePath

from onnxrewrite.errors import UsageError


@dataclass(frozen=True)
class Shard:
    """A part of the models.

    Attributes:
        number: From 1 to ``count``.
        count: The number of parts.
    """

    number: int = 1
    count: int = 1

    @staticmethod
    def parse(text: str) -> Shard:
        """``3/50``; UsageError for anything else."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise UsageError(f"--shard {text}: write K/N, such as 3/50, with K from 1 to N")
        return Shard(int(found[1]), int(found[2]))

    def has(self, place: PurePath) -> bool:
        """True if the model with this output belongs to it.

        By the digest of the name: a model stays where it is when others come and go, and machines that list a folder at
        different times agree.
        """
        digest = hashlib.sha256(place.as_posix().encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}-of-{self.count}"
