"""Times of generation with decoders, by turns: a prompt, which gives the first token, and a step for each further one.

Keys and values stay where they are between steps: in one buffer where the model allows it, as a generator does it.  A
decoder without past reads the whole text at each step.  Sessions are opened anew again and again, for a session keeps
the good or bad places in memory that it got: for one and the same model, that is up to a tenth of a step.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from onnxrewrite import io
from onnxrewrite.errors import ModelError, one_line
from onnxrewrite.io.inlining import inlined
from onnxrewrite.ir.target import type_string
from onnxrewrite.measure.peak_memory import Use, used
from onnxrewrite.measure.timing import Interval, Timing, ratio, runs_anew
from onnxrewrite.report.plain_reports import DecoderRow, GenerationReport
from onnxrewrite.runtime.settings import DEFAULT, Setting, open_runner
from onnxrewrite.suite.decoders.caches import is_shareable
from onnxrewrite.suite.decoders.decoder_interface import Interface, find_interface
from onnxrewrite.suite.decoders.genai_folder import MODEL
from onnxrewrite.suite.decoders.greedy_generation import Generator
from onnxrewrite.system.arrays import Array, Feeds, Outputs


@dataclass(frozen=True)
class DecoderTimes:
    """The times of one of several decoders that were compared.

    Attributes:
        name: The name; no two have the same.
        interface: Of the model.
        shared: True if past and present are one buffer.
        prompt: Runs of the whole prompt: the time to the first token.
        step: Runs that give one further token.
        prompt_ratio: The time of a prompt to that of the first decoder, round by round.
        step_ratio: That of a step.
        memory: Bytes at the peak of a process that opens it and reads the prompt; None where it was not measured.
    """

    name: str
    interface: Interface
    shared: bool
    prompt: Timing
    step: Timing
    prompt_ratio: Interval
    step_ratio: Interval
    memory: int | None = None

    def to_json(self) -> DecoderRow:
        """Plain data; seconds, bytes."""
        return {
            "name": self.name,
            "has_past": bool(self.interface.caches),
            "shared_buffer": self.shared,
            "prompt": self.prompt.to_json(),
            "prompt_ratio": self.prompt_ratio.to_json(),
            "step": self.step.to_json(),
            "step_ratio": self.step_ratio.to_json(),
            "tokens_a_second": 1 / self.step.latency.median,
            "memory": self.memory,
        }


@dataclass(frozen=True)
class GenerationTimes:
    """The result of ``generation_times``.

    Attributes:
        prompt: The number of tokens of the prompt.
        tokens: The number of tokens after it; steps were timed in the middle of them.
        setting: The session setting of all.
        decoders: In the order in which they were given.
    """

    prompt: int
    tokens: int
    setting: Setting
    decoders: Sequence[DecoderTimes]

    def to_json(self) -> GenerationReport:
        """Plain data."""
        return {
            "prompt": self.prompt,
            "tokens": self.tokens,
            "provider": self.setting.provider,
            "threads": self.setting.threads,
            "decoders": [each.to_json() for each in self.decoders],
        }


def generation_times(
    models: Sequence[str | os.PathLike[str]],
    *,
    prompt: int = 128,
    tokens: int = 128,
    setting: Setting = DEFAULT,
    parts: Mapping[str, str | None] | None = None,
    seconds: float = 5.0,
    memory: bool = True,
) -> GenerationTimes:
    """Time decoders by turns, for one text.

    Args:
        models: Files, or folders with a ``model.onnx``; the others are compared with the first.
        prompt: Tokens of the prompt.
        tokens: Tokens after it.
        setting: Provider, threads.
        parts: Names of inputs and outputs, see ``find_interface``.
        seconds: For the prompts of all together, and again for the steps.
        memory: Measure the peak of memory, which takes a process for each.

    Raises:
        ModelError: A model cannot be read or run, or is no decoder.
        UsageError: A part of an interface must be told.
    """
    decoders = {name: _Decoder(path, prompt + tokens, setting, parts) for name, path in _names(models).items()}
    steps = ((0, prompt), (prompt + tokens // 2, 1))
    openers = [{name: partial(each.opened, *step) for name, each in decoders.items()} for step in steps]
    peaks = _peaks(decoders, prompt, setting) if memory else {}
    runs = [runs_anew(each, seconds=seconds) for each in openers]
    first = next(iter(decoders))
    ratios = [{name: ratio(t, run[first], of_processor=setting.is_serial) for name, t in run.items()} for run in runs]
    found = [
        DecoderTimes(
            name,
            each.interface,
            each.shared,
            runs[0][name],
            runs[1][name],
            ratios[0][name],
            ratios[1][name],
            peaks.get(name),
        )
        for name, each in decoders.items()
    ]
    return GenerationTimes(prompt, tokens, setting, found)


def _names(models: Sequence[str | os.PathLike[str]]) -> dict[str, Path]:
    """The files of models by a name for each, which is short where no other has it."""
    paths = list(dict.fromkeys(map(Path, models)))
    counts = Counter(path.name for path in paths)
    return {
        path.name if counts[path.name] == 1 else str(path): path / MODEL if path.is_dir() else path for path in paths
    }


def _peaks(decoders: Mapping[str, _Decoder], prompt: int, setting: Setting) -> dict[str, int]:
    """The peak of memory of each, where the system tells it."""
    uses = [Use(name, each.path, each.feeds(0, prompt), setting) for name, each in decoders.items()]
    return {use.name: found.peak for use, found in used(uses) if found.peak is not None}


class _Decoder:
    """A decoder, and the keys and values of a text.

    Args:
        path: Of the model.
        room: Tokens that a text has room for.
    """

    def __init__(self, path: Path, room: int, setting: Setting, parts: Mapping[str, str | None] | None) -> None:
        model: ir.Model = inlined(io.load(path)).model
        self.path, self.room, self.setting = path, room, setting
        self.interface = find_interface(model, parts)
        self.shared = is_shareable(model.graph, self.interface.caches)
        self.types = {each.name or "": type_string(each.dtype) for each in model.graph.inputs if each.dtype is not None}

    def run(self, feeds: Feeds) -> Outputs | str:
        """See ``greedy_generation.Steps``; a step is bound instead."""
        raise NotImplementedError

    def feeds(self, past: int, new: int) -> dict[str, Array]:
        """The inputs of a step of ``new`` tokens after ``past`` others, of one text."""
        face, ids = self.interface, np.ones((1, new), np.int64)
        generator = Generator(self, face, buffer=self.room if self.shared else 0)
        if not face.caches:
            return generator.feeds(np.ones((1, past + new), np.int64))
        if past:
            generator.mask = np.ones((1, past), np.int64)
            length, rng = self.room if self.shared else past, np.random.default_rng(0)
            for cache in face.caches:
                for name in (cache.past_key, cache.past_value):
                    generator.past[name] = rng.standard_normal((1, cache.heads, length, cache.size), np.float32)
        made = generator.feeds(ids)
        empty = Generator(self, face).feeds(ids)  # which has the dtypes of the model
        return {name: array.astype(empty[name].dtype) for name, array in made.items()}

    def opened(self, past: int, new: int) -> Callable[[], None]:
        """A new session, which runs such a step, again and again at the same place.

        Raises:
            ModelError: It does not open, or not run.
        """
        runner = open_runner(str(self.path), {}, self.setting)
        handle, binding = runner.handle, runner.handle.io_binding()
        given = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in self.feeds(past, new).items()}
        for name, value in given.items():
            binding.bind_ortvalue_input(name, value)
        presents = {
            present: given[name]
            for cache in self.interface.caches
            for name, present in ((cache.past_key, cache.present_key), (cache.past_value, cache.present_value))
        }
        for output in handle.get_outputs():
            if self.shared and output.name in presents:
                binding.bind_ortvalue_output(output.name, presents[output.name])
            else:
                binding.bind_output(output.name)

        def run() -> None:
            handle.run_with_iobinding(binding)

        try:
            run()
        except Exception as error:  # ORT raises a dozen classes, one a status code
            raise ModelError(f"{self.path}: cannot read {new} tokens after {past}: {one_line(error)}") from error
        return run
