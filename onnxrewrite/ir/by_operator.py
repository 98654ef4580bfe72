"""Functions by operator, registered where they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Function = TypeVar("Function")


class ByOperator(dict[tuple[str, str], Function], Generic[Function]):
    """(domain, operator) to a function."""

    def of(self, *ops: str, domain: str = "") -> Callable[[Function], Function]:
        """Register the function of operators, each of which has but one."""

        def register(function: Function) -> Function:
            known = [op for op in ops if (domain, op) in self]
            if known:
                raise ValueError(f"a second function of {', '.join(known)}")
            self.update({(domain, op): function for op in ops})
            return function

        return register
