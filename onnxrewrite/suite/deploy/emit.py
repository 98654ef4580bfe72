"""Writing what is recommended: the model with its session options, the report, its page, and ten lines that run it.

The options are those that it was measured with but for one: threads that wait spin, as ONNX Runtime has it.  They sleep
while models run by turns, for they would take the processor from the next; a model that runs alone is faster with them.
"""

from __future__ import annotations

import contextlib
import gc
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort

from onnxrewrite import io
from onnxrewrite.errors import CheckError, ModelError, Rest
from onnxrewrite.ir import custom
from onnxrewrite.report.html.deploy_page import deployment_page
from onnxrewrite.runtime.deployment import SESSION_KEY, Deployment
from onnxrewrite.runtime.session import ORT_SUFFIX
from onnxrewrite.runtime.settings import LEVELS, SHRINKING, open_runner
from onnxrewrite.suite.deploy.artifact import STARTUP, STARTUP_DATA, Artifact, model_files, saved_files
from onnxrewrite.suite.deploy.operator_times import by_operator
from onnxrewrite.suite.deploy.outcome import Outcome
from onnxrewrite.suite.deploy.shipped import REFERENCE, figures, kept, save_pairs
from onnxrewrite.suite.quality.gate import Judge, closeness_of
from onnxrewrite.system import files
from onnxrewrite.system.arrays import Feeds
from onnxrewrite.system.atomic import copy_whole, write_whole
from onnxrewrite.system.digests import sha256_of
from onnxrewrite.system.versions import versions

_SPINNING = """
Threads that wait spin here, which is ONNX Runtime's default and fastest for a model that runs alone.  They slept while
it was measured, by turns with others; where it shares the processor, let them sleep:
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
"""

_SECONDS = 0.5
"""To time the result alone, in units of a yardstick."""

MODEL, REPORT, PAGE, RUN = "model.onnx", "report.json", "report.html", "run.py"


def emit(outcome: Outcome, out: Path, judge: Judge) -> None:
    """Judge the result once more, and write it.

    Raises:
        CheckError: It does not pass the gate; nothing is written.
        ModelError: It cannot be written.
        IncompleteError: It is written, and what goes with it cannot be.
    """
    final = outcome.final.artifact
    refusals = {outcome.gate.refuses(judge.quality(*each)) for each in {(final.path, final.setting), final.session}}
    refusal = next(filter(None, sorted(refusals)), "")
    if refusal:
        own = outcome.gate.refuses(outcome.baseline.metrics.quality)
        told = f"; nor does the original, as ONNX Runtime runs it: {own}" if own else ""
        raise CheckError(f"the result does not pass the gate and nothing was written: {refusal}{told}")
    model = io.load(final.path)
    model.metadata_props[SESSION_KEY] = deployment(final).text()
    io.save(model, out / MODEL)
    rest = Rest(f"{out / MODEL} was written")
    with rest.part("what goes with it"):
        _describe(outcome, out, judge)
    rest.end()


def _describe(outcome: Outcome, out: Path, judge: Judge) -> None:
    """Write the report, its page, and the program."""
    final = outcome.final.artifact
    sample = judge.data.timed.inputs
    given = {} if outcome.generated else sample
    gc.collect()  # graphs and sessions refer to themselves in circles, and hold all weights of a model each
    outcome.operators = by_operator(outcome.baseline, outcome.final, outcome.binding, given)
    outcome.program = program(final, sample)
    outcome.versions = versions()
    paths = {"model": out / MODEL, "report": out / REPORT, "page": out / PAGE, "run": out / RUN}
    outcome.files = {name: str(path) for name, path in paths.items()}
    _remove_earlier(out)
    if final.opened_as is not None:
        for number, path in enumerate(saved_files(final.opened_as)):
            copy_whole(path, out / path.name)
            outcome.files["startup data" if number else "startup"] = str(out / path.name)
    write_whole(out / RUN, outcome.program, str(out / RUN))
    outcome.shipped = _shipped(outcome, out, judge, sample)
    data = outcome.to_json()
    texts = {
        "report": json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n",
        "page": deployment_page(data),
    }
    for name, text in texts.items():
        write_whole(paths[name], text, outcome.files[name])


def _remove_earlier(out: Path) -> None:
    """Remove the files that open faster of an earlier run, which hold its model; what somebody has changed stays."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, ModelError):
        recorded = json.loads(files.read_text(out / REPORT))["shipped"]["files"]
        for name in {f"{STARTUP}.onnx", f"{STARTUP}{ORT_SUFFIX}", STARTUP_DATA} & recorded.keys():
            if files.is_regular(out / name) and sha256_of([out / name])[0] == recorded[name]:
                (out / name).unlink()


def _shipped(outcome: Outcome, out: Path, judge: Judge, sample: Feeds) -> dict[str, object]:
    """The record for ``recheck``, and its file of samples."""
    final = outcome.final
    pairs = kept(judge.references())
    if pairs:
        save_pairs(out / REFERENCE, pairs)
        outcome.files["reference"] = str(out / REFERENCE)
    path, setting = final.artifact.session
    names = {Path(each).name for name, each in outcome.files.items() if name not in ("report", "page")}
    names |= {each.name for each in model_files(out / MODEL)}
    wanted = [outputs for _, outputs in pairs]
    timed = pairs[0][0] if pairs else sample  # which is what there is later
    runner = open_runner(path, timed, setting)
    order = [o.name for o in runner.handle.get_outputs()]
    found = [dict(zip(order, runner.on(inputs)(), strict=True)) for inputs, _ in pairs]
    return {
        "files": {name: sha256_of([out / name])[0] for name in sorted(names)},
        "outputs": {name: each.score for name, each in closeness_of(wanted, found).items()} if pairs else {},
        "figures": replace(
            figures(path, setting, timed, seconds=_SECONDS, memory=False), memory=final.metrics.memory
        ).to_json(),
    }


def deployment(final: Artifact) -> Deployment:
    """The session options that are stored with it."""
    setting = final.setting
    return Deployment(
        level=setting.level,
        threads=setting.threads,
        providers={setting.provider: {}},
        arena=None if setting.arena else False,
        memory_pattern=None if setting.memory_pattern else False,
    )


def program(final: Artifact, inputs: Feeds) -> str:
    """Python that opens the model with its options and runs it once; it needs ONNX Runtime and numpy, and the
    libraries of custom operators that were loaded, only.

    Args:
        final: The artifact to run.
        inputs: Arrays by name, for their shapes and dtypes.
    """
    made = "".join(f"    {name!r}: {_zeros(value)},\n" for name, value in inputs.items())
    level = LEVELS[final.setting.level].name
    memory = "" if final.setting.arena else "options.enable_cpu_mem_arena = False\n"
    memory += "" if final.setting.memory_pattern else "options.enable_mem_pattern = False\n"
    kernels = "".join(f"options.register_custom_ops_library({path!r})\n" for path in custom.libraries())
    spinning = "" if final.setting.threads == 1 else _SPINNING
    return f'''"""Runs {MODEL} with the provider, the level and the threads that it was measured with.{spinning}"""

from pathlib import Path

import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.{level}
options.intra_op_num_threads = {final.setting.threads}
{memory}{kernels}path = Path(__file__).with_name({MODEL!r})
{_startup(final)}session = ort.InferenceSession(str(path), options, providers=[{final.setting.provider!r}])
inputs = {{
{made}}}
{_run(final)}
for output, value in zip(session.get_outputs(), outputs, strict=True):
    print(output.name, getattr(value, "shape", len(value)))
'''


def _startup(final: Artifact) -> str:
    """Lines that open the file that opens faster, with the version of ONNX Runtime that it belongs to."""
    if final.opened_as is None:
        return ""
    return f"""startup = path.with_name({final.opened_as.name!r})  # remove it where the processor is another one
if startup.exists() and ort.__version__ == {ort.__version__!r}:
    path, options.graph_optimization_level = startup, ort.GraphOptimizationLevel.ORT_DISABLE_ALL
"""


def _run(final: Artifact) -> str:
    """Lines that run the model."""
    if final.setting.bound:
        return """binding = session.io_binding()
for name, value in inputs.items():
    binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(value))
places = [ort.OrtValue.ortvalue_from_numpy(value) for value in session.run(None, inputs)]
for output, place in zip(session.get_outputs(), places, strict=True):
    binding.bind_ortvalue_output(output.name, place)
session.run_with_iobinding(binding)  # as often as there are inputs of these shapes; it writes to the same places
outputs = [place.numpy() for place in places]"""
    if final.setting.shrinks:
        return f"""run = ort.RunOptions()
run.add_run_config_entry{SHRINKING}
outputs = session.run(None, inputs, run)"""
    return "outputs = session.run(None, inputs)"


def _zeros(value: object) -> str:
    array = np.asarray(value)
    dtype = "object" if array.dtype.hasobject else f"np.dtype({array.dtype.name!r})"
    return f"np.full({array.shape}, '', {dtype})" if array.dtype.hasobject else f"np.zeros({array.shape}, {dtype})"
