"""What a network has that can be one operator, counted from its definition."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Structure:
    """The parts of a network, by kind.

    Attributes:
        attentions: Softmax of products of queries and keys, times values.
        normalizations: By kind: ``layer``, ``rms``, ``group``, ``instance``.
        activations: By kind: ``gelu`` (exact or by tanh), ``swish`` (of any slope), ``hardswish``, ``mish``.
        rotary: Rotary embeddings; queries and keys are two.
    """

    attentions: int = 0
    normalizations: Counter[str] = field(default_factory=Counter)
    activations: Counter[str] = field(default_factory=Counter)
    rotary: int = 0

    def toml(self) -> str:
        """The text that says it."""
        return "\n".join(
            [
                f"attentions = {self.attentions}",
                f"rotary = {self.rotary}",
                *_table("normalizations", self.normalizations),
                *_table("activations", self.activations),
                "",
            ]
        )


def _table(name: str, counts: Counter[str]) -> Iterable[str]:
    return ["", f"[{name}]", *(f"{kind} = {count}" for kind, count in sorted(counts.items()))]
