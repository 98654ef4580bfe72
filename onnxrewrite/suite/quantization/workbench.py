"""One model to be quantized, in one way or in many: what all of them share is made once."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import onnx
import onnx_ir as ir

from onnxrewrite import io
from onnxrewrite.api import application
from onnxrewrite.compiler.loop import Progress
from onnxrewrite.compiler.request import Lowering
from onnxrewrite.errors import UsageError, foreign
from onnxrewrite.io.statistics import stored_bytes
from onnxrewrite.ir.facts import Facts
from onnxrewrite.runtime.session import one_line, referred
from onnxrewrite.runtime.settings import Setting
from onnxrewrite.suite.decoders.text_data import decoder_of
from onnxrewrite.suite.quality.closeness import Closeness
from onnxrewrite.suite.quality.data import Data, Given, Sample, batched, load_data
from onnxrewrite.suite.quality.functions import function
from onnxrewrite.suite.quality.gate import Judge, Metric, Quality
from onnxrewrite.suite.quantization import engine
from onnxrewrite.suite.quantization.accuracy_levels import chosen_levels
from onnxrewrite.suite.quantization.bit_allocation import allocated
from onnxrewrite.suite.quantization.bit_trials import Formats, Product, Trials
from onnxrewrite.suite.quantization.block_weights import in_forms
from onnxrewrite.suite.quantization.calibrated_ranges import often_left, spans
from onnxrewrite.suite.quantization.made_model import Made
from onnxrewrite.suite.quantization.plain_form import quantized_nodes
from onnxrewrite.suite.quantization.prepare import in_opset, named, refuse_quantized, rewritten, typed
from onnxrewrite.suite.quantization.quantize_settings import QuantizeSettings
from onnxrewrite.suite.quantization.quantized import Quantized
from onnxrewrite.suite.quantization.select import Selection, floats_left, in_few_bits, reason_for_nothing, select
from onnxrewrite.suite.quantization.smoothing import smooth
from onnxrewrite.suite.quantization.split import split_gemms
from onnxrewrite.suite.quantization.stored import store
from onnxrewrite.suite.quantization.weight_format import forms_by_settings, forms_in_blocks
from onnxrewrite.system import temporary

Augment: TypeAlias = Callable[[Sample], Iterable[Sample]]
"""Makes samples of one, to calibrate on all of them."""


@dataclass
class Work:
    """A model and all that quantizing it takes; to be used in a ``with``.

    Args:
        source: The float model; it is not changed.
        given: The user's data; None makes some up.
        most: So many samples at most.
        batch: Rows of a file that make one sample.
        prepare: Rewrite it before and after.
        lower: The way in which the rewrite after chooses kernels; see ``onnxrewrite.apply``.
        threads: Within an operator, where that rewrite measures.
        dims: Sizes of named dimensions, of data that are made up and where the rewrite measures.
        calibration: The user's data to find ranges on, where they are not those that results are judged on.
        metric: The measure by which results are judged in place of closeness.
        augment: Called on each sample that is calibrated on.
        seed: Of what is made up.
        progress: Called with (phase, done, to do).

    Raises:
        UsageError: The model is quantized already.
    """

    source: io.Source
    given: Given = None
    most: int | None = None
    prepare: bool = True
    lower: Lowering | None = None
    threads: int = 0
    batch: int = 1
    dims: Mapping[str, int] = field(default_factory=dict)
    calibration: Given = None
    metric: Metric | None = None
    augment: Augment | None = None
    seed: int = 0
    progress: Progress | None = None
    _count: int = 0
    _calibrates: bool = False
    _ready: dict[tuple[int, bool], ir.Model] = field(default_factory=dict)
    _smooth: dict[QuantizeSettings, ir.Model] = field(default_factory=dict)
    _kept: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Work:
        self.original = io.load(self.source)
        refuse_quantized(self.original)
        self.decoder = decoder_of(self.original, self.seed)
        with ExitStack() as kept:
            self.opened = kept.enter_context(referred(self.original))
            self.dims = batched(self.opened, self.dims, self.batch)
            self.folder = kept.enter_context(temporary.folder())
            self._kept = kept.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._kept.close()

    @cached_property
    def data(self) -> Data:
        """The samples."""
        return self._loaded(self.given, "--data")

    @cached_property
    def calibration_data(self) -> Data:
        """The samples that ranges and forms are found on."""
        if self.calibration is None:
            return self._parts[0]
        return self._loaded(self.calibration, "--calibration-data")

    @property
    def judged_data(self) -> Data:
        """The samples that results are judged on."""
        return self._parts[1]

    def chosen(self, settings: QuantizeSettings) -> tuple[ir.Model, dict[str, str]]:
        """The prepared model, and the nodes of it that are quantized, with their operators."""
        ready, _ = self._prepared(settings)
        return ready, select(ready, settings).chosen

    @cached_property
    def _parts(self) -> tuple[Data, Data]:
        """The samples to calibrate on, and those to judge on."""
        return self.data.parted() if self._calibrates and self.calibration is None else (self.data, self.data)

    def read_data(self, tried: Sequence[QuantizeSettings]) -> None:
        """Read all that the user gave: what is wrong with it is told before any work, and is no fault of a candidate.

        If any of the settings calibrates, a part of the data is kept from that, and all results are judged on it.

        Raises:
            UsageError: It cannot be read, or does not fit the model.
        """
        chosen = ("weights",) if self.decoder is not None else ()
        self._calibrates = any(settings.is_calibrated or settings.mode in chosen for settings in tried)
        if self.given is not None:
            _ = self.data
        if self.calibration is not None:
            _ = self.calibration_data

    def _loaded(self, given: Given, option: str) -> Data:
        if self.decoder is not None:
            given = self.decoder.completed(given)
        return load_data(
            given, self.opened, most=self.most, batch=self.batch, dims=self.dims, seed=self.seed, option=option
        )

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.opened, self.judged_data, self.metric, None if self.decoder is None else self.decoder.parts)

    def make(self, settings: QuantizeSettings) -> Made:
        """The model, quantized, with its operators fused.

        Raises:
            UsageError: There is nothing to quantize, or data that do not fit.
            ModelError: onnxruntime.quantization fails.
            CheckError: A rewrite goes wrong.
        """
        return self.fused(self.unfused(settings))

    def fused(self, made: Made) -> Made:
        """A quantized model with its operators fused, as they are measured to be fastest; the plain form as it is."""
        if not self.prepare or made.settings.plain:
            return made
        gc.collect()  # likewise
        return replace(made, model=self._rewritten_again(made.model))

    def unfused(self, settings: QuantizeSettings) -> Made:
        """The model as the quantizer leaves it: made in a fraction of the time, and as good but for rounding.

        Raises:
            UsageError, ModelError, CheckError: As of ``make``.
        """
        gc.collect()  # graphs and sessions refer to themselves in circles, and hold all weights of a model each
        if settings.plain:
            return self._made_plainly(settings)
        ready, notes = self._prepared(settings)
        selection = select(ready, settings)
        if not selection.chosen:
            raise UsageError(f"nothing to quantize: {reason_for_nothing(selection.left, settings)}")
        floats = floats_left(ready, selection)
        nodes = selection.chosen if settings.mode == "static" else split_gemms(ready, selection.chosen)
        self._tell("quantize")
        forms: Formats = {}
        trials: Trials | None = None
        if settings.mode == "dynamic":
            nodes = store(ready, nodes, by_row=settings.per_channel)
            forms = forms_in_blocks(ready, nodes, settings)
            nodes = {name: operator for name, operator in nodes.items() if name not in forms}
        if settings.is_mixed or settings.algorithm == "gptq":
            trials = self._trials(ready, settings, nodes)
        if settings.mode == "weights" and not settings.is_mixed:
            forms, nodes = forms_by_settings(ready, nodes, settings), {}
        if settings.is_mixed and trials is not None:
            found = allocated(trials, self.close, settings, self._counted)
            notes.append(str(found))
            selection, forms, nodes = in_few_bits(selection, found.forms), found.forms, {}
        quantized = trials.in_forms if trials is not None else in_forms
        model = self._filed(quantized(ready, forms)) if forms else ready
        if settings.mode == "weights" and not settings.is_mixed:
            model, levels = self._levelled(model, partial(quantized, ready), forms, settings, notes)
            selection = selection if levels is None else in_few_bits(selection, levels)
            forms = levels or {}
        model = self._quantized(model, settings, nodes) if nodes else model
        ranges = spans(model) if settings.mode == "static" else {}
        return Made(model, settings, selection, floats, notes, forms, ready, ranges)

    def _made_plainly(self, settings: QuantizeSettings) -> Made:
        """The form that ``onnxruntime.quantization`` gives the original by itself."""
        self._tell("quantize")
        ready = named(io.load(self.original))
        samples = self._augmented() if settings.mode == "static" else ()
        model = self._through_files(ready, partial(engine.plain, mode=settings.mode, samples=samples))
        nodes = quantized_nodes(ready, model)
        if not nodes:
            raise UsageError("nothing to quantize: onnxruntime.quantization takes nothing of the model by itself")
        return Made(model, settings, Selection(nodes), {}, [], {}, ready, spans(model))

    def _rewritten_again(self, model: ir.Model) -> ir.Model:
        """The quantized model with its operators fused, as chosen at the sizes of the user's data."""
        inputs = {} if self.given is None or self.data.generated else self.data.timed.inputs
        return application.apply(
            model,
            check="fast",
            dims=self.dims,
            inputs=inputs,
            lower=self.lower,
            threads=self.threads,
            seed=self.seed,
            progress=self.progress,
        ).model

    def quality(self, made: Made) -> Quality:
        """The closeness of a quantized model to the original; values that often leave their ranges are noted, of models
        that fit into one message."""
        self._tell("judge")
        gc.collect()  # likewise
        with referred(made.model) as opened:
            found = self._judge.quality(opened)
        if made.ranges and made.ready is not None and not io.needs_external_data(made.ready):
            made.left = often_left(made.ranges, made.ready, self.judged_data)
        return found

    def finish(
        self, made: Made, settings: QuantizeSettings, quality: Quality | None, out: str | os.PathLike[str] | None
    ) -> Quantized:
        """The result, written where it shall be."""
        after = made.size
        return Quantized(
            model=_written(made.model, out),
            settings=settings,
            nodes=made.selection.chosen,
            left=made.selection.left,
            floats=made.floats,
            notes=[*io.repairs(self.original), *made.notes, *filter(None, [made.left]), *self.notes_of_data()],
            forms={name: str(form) for name, form in made.forms.items()},
            quality=quality,
            before=stored_bytes(self.original),
            after=after,
        )

    def _prepared(self, settings: QuantizeSettings) -> tuple[ir.Model, list[str]]:
        """A copy of the model as it goes to the quantizer."""
        raised, notes = in_opset(self.original, settings)
        key = io.opset(raised), settings.mode == "weights"
        if key not in self._ready:
            if self.prepare:
                raised = rewritten(raised, settings.mode, seed=self.seed, progress=self.progress)
            self._ready[key] = named(raised)
        ready = self._ready[key]
        if settings.smooth:
            chosen = replace(settings, in_blocks=())
            if chosen not in self._smooth:
                self._smooth[chosen] = self._smoothed(io.load(ready), chosen)
            ready = self._smooth[chosen]
        return io.load(ready), notes

    def _smoothed(self, ready: ir.Model, settings: QuantizeSettings) -> ir.Model:
        smooth(ready, split_gemms(ready, select(ready, settings).chosen), self.calibration_data)
        return ready

    def _quantized(self, model: ir.Model, settings: QuantizeSettings, nodes: dict[str, str]) -> ir.Model:
        if settings.mode == "dynamic":
            return self._through_files(model, partial(engine.dynamic, settings=settings, nodes=nodes))
        samples = self._augmented()
        return self._through_files(model, partial(engine.static, settings=settings, nodes=nodes, samples=samples))

    def _levelled(
        self,
        model: ir.Model,
        made: Callable[[Formats], ir.Model],
        forms: Formats,
        settings: QuantizeSettings,
        notes: list[str],
    ) -> tuple[ir.Model, Formats | None]:
        """A decoder with weights in blocks, at the levels that keep its tokens; and its forms, None where no level was
        taken back."""
        if self.decoder is None or self.calibration_data.generated:
            return model, None
        judge = Judge(self.opened, self.calibration_data)
        found = chosen_levels(model, forms, judge, settings.min_agreement, self._counted)
        notes.append(str(found))
        return (self._filed(made(found.forms)), found.forms) if found.back else (model, None)

    def _filed(self, model: ir.Model) -> ir.Model:
        """A model whose weights lie in a file, from which sessions map them."""
        self._count += 1
        path = self.folder / f"blocks-{self._count}.onnx"
        io.save(model, path)
        return io.load(path)

    def _through_files(self, model: ir.Model, engine: Callable[..., None]) -> ir.Model:
        """The model that an engine makes of one, from one file to another."""
        self._count += 1
        source, target = (self.folder / f"{what}-{self._count}.onnx" for what in ("float", "quantized"))
        large = io.needs_external_data(model)
        if large:
            io.save(model, source)
        else:
            onnx.save(typed(model), source)
        engine(source, target, large=large)
        return io.load(target)

    def trials(self, settings: QuantizeSettings) -> Trials:
        """Trials of forms of weights on all products that could be quantized.

        Raises:
            UsageError: There are none, or data that do not fit.
        """
        ready, _ = self._prepared(settings)
        return self._trials(ready, settings, split_gemms(ready, select(ready, settings).chosen))

    def _trials(self, ready: ir.Model, settings: QuantizeSettings, nodes: dict[str, str]) -> Trials:
        Facts(ready.graph, ready.graph.opset_imports)  # rewritten nodes have no types yet
        products = [Product.of(node) for node in ready.graph if node.name in nodes]
        setting = Setting(threads=self.threads)
        return Trials(ready, products, self.calibration_data, setting, settings.rows)

    def close(self, model: ir.Model) -> Mapping[str, Closeness]:
        """The closeness of a model's outputs to the original's."""
        with referred(model) as opened:
            return self._judge.quality(opened).outputs

    def _counted(self, done: int, remain: int) -> None:
        if self.progress is not None:
            self.progress("quantize", done, remain)

    def _augmented(self) -> Iterator[Sample]:
        """The samples that ranges are found on, as the user's function makes them."""
        for sample in self.calibration_data:
            if self.augment is None:
                yield sample
                continue
            try:
                with foreign():
                    yield from (s if isinstance(s, Sample) else Sample(s) for s in self.augment(sample))
            except Exception as error:  # whatever somebody else's function raises
                raise UsageError(f"the augmentation fails: {one_line(error)}") from error

    def notes_of_data(self) -> list[str]:
        """Remarks about the data, a line each."""
        if "data" not in vars(self) or not self.data.generated:
            return []
        count = len(self.data)
        return [f"the data are made up ({count} samples): what they tell need not hold for yours; give --data"]

    def _tell(self, phase: str) -> None:
        if self.progress is not None:
            self.progress(phase, 0, 0)


def augmentation(spec: str | None) -> Augment | None:
    """The function that ``--augment`` names; None where it is not given."""
    return None if spec is None else function(spec, "--augment")


def _written(model: ir.Model, out: str | os.PathLike[str] | None) -> Path | onnx.ModelProto:
    if out is not None:
        io.save(model, out)
        return Path(out)
    if io.needs_external_data(model):
        raise UsageError("the quantized model takes 2 GB or more; give out, the file to write it to")
    return io.to_proto(model)
