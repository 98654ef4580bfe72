"""The sensitivity of each node to quantization: a ranking of the nodes, the most sensitive first.

Three methods:

- ``alone`` (the default): each node alone is quantized and the whole model judged.  This measures the quality that the
  model loses to one node.  It takes as many quantizations and runs as there are nodes.
- ``local``: the float and the quantized model run once, each node of the latter on the former's inputs, and its result
  is compared with the former's.  This measures the noise that one node makes, and not its effect on the outputs.
- ``accumulated``: the same with inputs as the quantized model makes them; noise adds up, so late nodes look worse.

``alone`` is the default because it is right and not expensive: it measures the effect of a node's noise on the outputs,
and a node may make much noise of which little arrives there.  In ``python -m benchmarks.sensitivity`` giving back nodes
in its order recovered the most for the same number of nodes on all four models; docs/mixed-precision.md has the
figures.  It does not see joint effects, such as two nodes that share the rounding of one input.  Take ``local`` for
models of hundreds of nodes, or of gigabytes.

The noises of nodes hardly correlate, so those of single nodes nearly add up to that of all;
``Sensitivity.explained`` gives the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, Unpack, get_args

from onnxrewrite import io
from onnxrewrite.compiler.loop import Progress
from onnxrewrite.errors import UsageError
from onnxrewrite.reference.tolerance import finite
from onnxrewrite.report.plain_reports import SensitiveRow, SensitivityReport
from onnxrewrite.suite.precision.candidates import Candidates, candidates
from onnxrewrite.suite.precision.teacher_forcing import node_errors
from onnxrewrite.suite.quality.gate import Judging, Quality
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings

Method: TypeAlias = Literal["alone", "local", "accumulated"]


@dataclass(frozen=True)
class Sensitive:
    """One node.

    Attributes:
        name: Of the node in the prepared model.
        operator: Its type.
        snr: Decibels of the worst output, or of the node's own with ``local`` and ``accumulated``; infinite where
            quantizing it changes nothing.
        drop: The loss of the metric, or of the cosine or agreement; that of the node's own result with ``local`` and
            ``accumulated``.
        scope: The module that it belongs to, outer first; empty where nobody says.
        bytes: By which its weights are larger in float.
    """

    name: str
    operator: str
    snr: float
    drop: float
    scope: str = ""
    bytes: int = 0

    def to_json(self) -> SensitiveRow:
        """Plain data; None for an infinite ratio."""
        return {
            "name": self.name,
            "operator": self.operator,
            "snr": finite(self.snr),
            "drop": self.drop,
            "scope": self.scope,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class Sensitivity(Sequence[Sensitive]):
    """The result of ``sensitivity``: nodes in their order, the most sensitive first.

    Attributes:
        nodes: All of them.
        method: The method of the ranking.
        settings: The quantization settings.
        quality: Of the model with all nodes quantized.
        order: Names of the nodes in the order of the graph.
        variants: Makes models with some nodes in float.
    """

    nodes: Sequence[Sensitive]
    method: Method
    settings: QuantizeSettings
    quality: Quality
    order: Sequence[str]
    variants: Candidates = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, index: Any) -> Any:
        return self.nodes[index]

    def __iter__(self) -> Iterator[Sensitive]:
        return iter(self.nodes)

    @property
    def names(self) -> list[str]:
        """The nodes' names, the most sensitive first."""
        return [each.name for each in self.nodes]

    @property
    def explained(self) -> float | None:
        """Noise power of the nodes one by one to that of all at once, 1 where they add up; of ``alone`` only."""
        if self.method != "alone" or not math.isfinite(self.quality.worst.snr):
            return None
        return sum(10 ** (-each.snr / 10) for each in self.nodes) / 10 ** (-self.quality.worst.snr / 10)

    def to_json(self) -> SensitivityReport:
        """Plain data."""
        return {
            "method": self.method,
            "settings": self.settings.to_json(),
            "name": self.settings.name,
            "quality": self.quality.to_json(),
            "explained": self.explained,
            "nodes": [each.to_json() for each in self.nodes],
            "order": list(self.order),
        }


def sensitivity(
    source: io.Source | Candidates,
    settings: QuantizeSettings = QuantizeSettings(),  # noqa: B008
    *,
    method: Method = "alone",
    prepare: bool = True,
    progress: Progress | None = None,
    **judging: Unpack[Judging],
) -> Sensitivity:
    """Rank the nodes that can be quantized by what it costs.

    Args:
        source: The model, or the ``candidates`` of one, which then say all but the method.
        settings: The quantization settings; nodes that ``exclude`` names, by name, scope or operator, are left out.
        method: ``alone``, ``local`` or ``accumulated``: see the module.
        prepare: Rewrite the model first, see ``quantize``.
        progress: Called with (phase, done, to do).
        judging: ``data``, ``dims``, ``metric`` and ``seed``; see ``Judging``.  With ``alone``, nodes are ranked by what
            the metric drops.

    Raises:
        UsageError: Bad arguments, or nothing to quantize.
        ModelError: The model cannot be read, run or quantized.
    """
    if method not in get_args(Method):
        raise UsageError(f"method must be {', '.join(get_args(Method))}, not {method!r}")
    variants = (
        source
        if isinstance(source, Candidates)
        else candidates(source, settings, prepare=prepare, progress=progress, **judging)
    )
    found = _METHODS[method](variants, progress)
    scopes, grown = variants.named.scopes, variants.weight_bytes()
    nodes = [
        Sensitive(name, operator, *found[name], scopes[name], grown[name]) for name, operator in variants.nodes.items()
    ]
    by_metric = method == "alone" and variants.metric is not None
    nodes.sort(key=lambda each: (-each.drop if by_metric else 0.0, each.snr))
    return Sensitivity(nodes, method, variants.settings, variants.quality(), list(variants.nodes), variants)


_Measured: TypeAlias = dict[str, tuple[float, float]]


def _alone(variants: Candidates, progress: Progress | None) -> _Measured:
    found = {}
    for done, name in enumerate(variants.nodes):
        if progress is not None:
            progress("sensitivity", done, len(variants.nodes) - done)
        quality = variants.quality_alone(name)
        found[name] = (quality.worst.snr, quality.drop)
    return found


def _own(variants: Candidates, *, forced: bool) -> _Measured:
    found = node_errors(variants, forced=forced)
    return {n: (found[n].snr, 1 - found[n].score) if n in found else (math.inf, 0.0) for n in variants.nodes}


_METHODS: Mapping[str, Callable[[Candidates, Progress | None], _Measured]] = {
    "alone": _alone,
    "local": lambda variants, _: _own(variants, forced=True),
    "accumulated": lambda variants, _: _own(variants, forced=False),
}
