"""Cost models: what ``apply(..., cost=...)`` chooses by, and what own ones are written with."""

from __future__ import annotations

from onnxrewrite.measure.cost_models import (
    Bytes,
    Call,
    Clock,
    Cost,
    FirstKnown,
    Operations,
    Region,
    WeightedSum,
)
from onnxrewrite.measure.cost_table import Table, table
from onnxrewrite.runtime.kernel_work import Tensor, Work, work

__all__ = [
    "Bytes",
    "Call",
    "Clock",
    "Cost",
    "FirstKnown",
    "Operations",
    "Region",
    "Table",
    "Tensor",
    "WeightedSum",
    "Work",
    "table",
    "work",
]
