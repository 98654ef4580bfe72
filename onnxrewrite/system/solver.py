"""A program with integers, solved by HiGHS: on one thread, to the optimum, and without a word."""

from __future__ import annotations

import highspy


class Program(highspy.Highs):
    """A new program; reports would go to the standard output."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.setOptionValue("threads", 1)
        self.setOptionValue("mip_rel_gap", 0.0)

    def enableCallbacks(self) -> None:
        """The first thing that a new one does; it prints its version there."""
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]

    @property
    def is_solved(self) -> bool:
        """True if there is an optimum."""
        return bool(self.getModelStatus() == highspy.HighsModelStatus.kOptimal)
