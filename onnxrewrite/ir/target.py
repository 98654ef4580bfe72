"""Targets: the opset, operators, kernels and dtypes that a runtime supports.

The answer comes from ONNX Runtime's kernels, see ``kernels``.  This module must not know which operators rewrites
would like to emit.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import onnx
import onnx_ir as ir

from onnxrewrite.errors import UsageError, one_line
from onnxrewrite.ir.kernels import AVOIDED, Kernel, built_in, kernels, known_providers, recorded_from
from onnxrewrite.ir.schema import (
    Schema,
    has_body,
    is_squatter,
    latest_version,
    normal_domain,
    ort_latest_version,
    schema,
    standard_domains,
    versions,
)

GROUP: Final = "onnxrewrite.targets"
"""The entry-point group of targets: a name, and a ``Target``."""


def _newest_opset() -> int:
    return min(ort_latest_version(), latest_version())


_CPU: Final = "CPUExecutionProvider"


@dataclass(frozen=True)
class Target:
    """A runtime to make a model for.  A package adds its own by an entry point ``onnxrewrite.targets``; a subclass can
    refuse more than its provider's kernels do.

    Attributes:
        name: Its name for ``--target``.
        runs_on: ONNX Runtime's name of the execution provider; None for any runtime of the standard's operators.
        opset_max: The newest ai.onnx opset that it accepts.
        portable: True if it is given the standard's operators only, though it has others.
        kernels: The provider whose kernels it has, where that is another one: a provider that compiles graphs leaves to
            the CPU what it cannot compile.
    """

    name: str
    runs_on: str | None
    opset_max: int = field(default_factory=_newest_opset)
    portable: bool = False
    kernels: str | None = None

    @property
    def provider(self) -> str | None:
        """The execution provider, if this build of ONNX Runtime has it: models can run on it here."""
        return self.runs_on if self.runs_on in providers() else None

    @property
    def note(self) -> str:
        """The provider that its results are checked on, where that is another one."""
        if self.runs_on in (None, _CPU):
            return ""
        lacks = "" if self.provider else f", which this build of ONNX Runtime {ort_version()} lacks"
        recorded = recorded_from(self._kernels) if self._kernels else ""
        known = f"; it is taken to have the kernels of ONNX Runtime {recorded}" if recorded else ""
        return f"for target {self.name}, results are checked on the CPU, not on {self.runs_on}{lacks}{known}"

    def takes(self, rule: str) -> bool:
        """True if a rule, by its name, is for this target."""
        return True

    def has_kernel(self, domain: str, op_type: str) -> bool:
        """True if there is a kernel for the operator, of any version and for any dtypes."""
        return (self._kernels, normal_domain(domain), op_type) in kernels()

    def newest_opset(self, op_type: str, opset: int) -> int:
        """The newest ai.onnx opset, up to ``opset``, in which it has a kernel for a standard operator; ``opset`` where
        that has a function body there, or no kernel in any."""
        kernel = self.kernel_version(op_type, opset)
        if kernel is None or has_body(schema("", op_type, opset)):
            return opset
        newer = (s.since_version for s in versions("", op_type) if kernel < s.since_version <= opset)
        return min(newer, default=opset + 1) - 1

    def kernel_version(self, op_type: str, opset: int) -> int | None:
        """The newest version of a standard operator, up to ``opset``, that there is a kernel for."""
        own = {self._kernels, _CPU} if self._kernels else ()  # the CPU runs what others cannot
        known = [kernel for each in own for kernel in kernels().get((each, "", op_type), ())]
        since = (s.since_version for s in versions("", op_type) if s.since_version <= opset)
        return max((v for v in since if any(kernel.serves(v) for kernel in known)), default=None)

    def runs_body(self, op_type: str, opset: int) -> bool:
        """False if an operator with one function body for all uses runs, on floats, neither by a kernel nor by that."""
        found = schema("", op_type, opset)
        if found is None or not has_body(found, fixed=True):
            return True
        floats = {each.type_var: ir.DataType.FLOAT for each in found.inputs if "tensor(float)" in each.types}
        if self.refuses("", op_type, opset, floats, indirect=True) is None:
            return True
        on_cpu = self._kernels is not None  # which runs what others cannot
        return on_cpu and _refused_by_kernels(_CPU, found, opset, tuple(sorted(floats.items())), True) is None

    @property
    def knows_kernels(self) -> bool:
        """True if the kernels of its own provider are known, so that they tell which opsets it gains by."""
        return self.kernels is None and self._kernels is not None

    @property
    def _kernels(self) -> str | None:
        """The provider whose kernels count; None where they are not known."""
        wanted = self.kernels or self.runs_on
        return wanted if wanted in known_providers() else None

    def refuses(
        self,
        domain: str,
        op_type: str,
        version: int,
        dtypes: Mapping[str, ir.DataType | None],
        *,
        indirect: bool = False,
    ) -> str | None:
        """None if the target can run the operator, else one short reason.

        ``version`` is the opset version of ``domain``; ``dtypes`` gives the dtype of each type variable that
        the node uses (None: not known, which is refused).

        Runnable is what has a kernel for these dtypes.  An operator without any kernel is runnable only if
        its schema has a function body and ONNX Runtime, asked to build a session of this one node at this
        opset, dtypes and default attributes, expands the body and places every node of it (asked once per
        process, then cached).  A look at the body's operators would not do: Swish runs at opset 24 and not
        at 26.  com.microsoft operators that have a schema and no kernel are refused.

        ``indirect`` accepts besides whatever such a session shows to run although the operator's kernels are
        for other dtypes: float16 through the float32 kernel between Casts (Add), or through the function body
        (Gelu).  It is off by default, for a fused operator should be emitted where there is a kernel for it; and a
        session tells nothing of other providers, for ONNX Runtime runs on the CPU what they have no kernel for.
        """
        domain = normal_domain(domain)
        if domain == "" and version > self.opset_max:
            return f"{self.name} runs ai.onnx up to opset {self.opset_max}, model has {version}"
        is_standard = domain in standard_domains() and not is_squatter(domain, op_type)
        if not is_standard and (self.portable or self.kernels is not None or self._kernels is None):
            return f"{'a portable model' if self.portable else f'target {self.name}'} has standard operators only"
        found = schema(domain, op_type, version)
        if found is None:
            return _why_no_schema(domain, op_type, version)
        reason = _refused_by_schema(found, dtypes)
        if reason is not None or self._kernels is None:
            return reason
        known = tuple(sorted((var, dtype) for var, dtype in dtypes.items() if dtype is not None))
        return _refused_by_kernels(self._kernels, found, version, known, indirect)


_BUILT_IN: Final = (
    ("onnxruntime-cpu", _CPU, None),
    ("onnxruntime-cuda", "CUDAExecutionProvider", None),
    ("onnxruntime-webgpu", "WebGpuExecutionProvider", None),
    ("tensorrt", "TensorrtExecutionProvider", _CPU),
    ("openvino", "OpenVINOExecutionProvider", _CPU),
    ("qnn", "QNNExecutionProvider", _CPU),
    ("coreml", "CoreMLExecutionProvider", _CPU),
)
"""Name, execution provider, and the provider that runs what that one cannot compile."""


@dataclass(frozen=True)
class Targets:
    """The targets that there are.

    Attributes:
        known: Our own, and those of installed packages, by name.
        broken: Reasons why packages' targets cannot be used, a line each.
    """

    known: Mapping[str, Target]
    broken: tuple[str, ...] = ()


def targets() -> Targets:
    """All targets; one that a package declares wrongly does not affect the others."""
    found, broken = _built_in(), list[str]()
    for point in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        try:
            made = _loaded(point, found)
        except Exception as error:  # a package can fail in any way
            broken.append(f"target {point.name} of {point.value} cannot be used: {one_line(error)}")
        else:
            found[made.name] = made
    return Targets(found, tuple(broken))


def _built_in() -> dict[str, Target]:
    found = {name: Target(name, runs_on, kernels=kernels) for name, runs_on, kernels in _BUILT_IN}
    return {**found, "onnx": Target("onnx", None, latest_version())}


def _loaded(point: EntryPoint, known: Mapping[str, Target]) -> Target:
    made = point.load()
    if not isinstance(made, Target):
        raise TypeError(f"it is a {type(made).__name__}, not a Target")
    if made.name != point.name or made.name in known:
        raise ValueError(f"it is called '{made.name}'" + (", as another one is" if made.name in known else ""))
    return made


def target(name: str, *, portable: bool = False) -> Target:
    """The target called ``name``; UsageError if there is none."""
    known: Mapping[str, Target] = _built_in()  # no package can take their names, and to look for packages takes longer
    if name not in known:
        found = targets()
        known = found.known
        if name not in known:
            told = "".join(f"; {line}" for line in found.broken)
            raise UsageError(f"unknown target '{name}'; known targets: {', '.join(known)}{told}")
    return replace(known[name], portable=portable) if portable else known[name]


def provider(name: str) -> str:
    """ONNX Runtime's name of an execution provider, of that or the short one: ``cuda``, ``CUDAExecutionProvider``.

    Raises:
        UsageError: There is none of that name, or this ONNX Runtime lacks it.
    """
    known = _by_short_name()
    found = known.get(_short(name).lower())
    if found is None:
        raise UsageError(f"unknown provider '{name}'; ONNX Runtime knows {', '.join(sorted(known))}")
    if found not in providers():
        raise UsageError(f"provider '{name}' is {_lacked(found)}")
    return found


def full_name(name: str) -> str:
    """As ``provider``, also where this build lacks it; the name itself where ONNX Runtime knows none of it."""
    return _by_short_name().get(_short(name).lower(), name)


@functools.cache
def _by_short_name() -> Mapping[str, str]:
    """Providers that ONNX Runtime knows, and those that this build was extended by, by short names."""
    import onnxruntime

    return {_short(each).lower(): each for each in (*onnxruntime.get_all_providers(), *providers())}


def target_on(provider: str) -> str:
    """The name of the target that runs on a provider; of one that has none of its own, ``onnx``: standard operators
    are what every provider takes."""
    return next((name for name, own, _ in _BUILT_IN if own == provider), "onnx")


def _short(provider: str) -> str:
    return re.sub("ExecutionProvider$", "", provider, flags=re.IGNORECASE)


def _lacked(provider: str) -> str:
    return f"{provider}, which this build of ONNX Runtime {ort_version()} lacks; it has {', '.join(providers())}"


def providers() -> tuple[str, ...]:
    """Execution providers of the installed ONNX Runtime build, in its order of preference."""
    return built_in()


@functools.cache
def ort_version() -> str:
    """Version of the installed ONNX Runtime."""
    import onnxruntime

    return str(onnxruntime.__version__)


def type_string(dtype: ir.DataType) -> str:
    """ONNX's name of a tensor type: ``FLOAT`` → ``"tensor(float)"``."""
    return f"tensor({dtype.name.lower()})"


def _called(domain: str, op_type: str) -> str:
    return f"{domain}.{op_type}" if domain else op_type


def _why_no_schema(domain: str, op_type: str, version: int) -> str:
    name = _called(domain, op_type)
    newest = schema(domain, op_type, None)
    if newest is None or newest.since_version <= version:
        return f"{name} is no operator of opset {version} ({domain or 'ai.onnx'})"
    first = next(v for v in range(version + 1, newest.since_version + 1) if schema(domain, op_type, v))
    return f"{name} needs opset {first}, model has {version}"


def _refused_by_schema(found: Schema, dtypes: Mapping[str, ir.DataType | None]) -> str | None:
    name = _called(found.domain, found.op_type)
    for var, dtype in dtypes.items():
        allowed = [f.types for f in (*found.inputs, *found.outputs) if f.type_var == var]
        if dtype is None:
            return f"dtype of {var} of {name} unknown"
        if allowed and type_string(dtype) not in allowed[0]:
            return f"{name} of opset {found.since_version} does not take {var} = {dtype.name.lower()}"
    return None


@functools.lru_cache(maxsize=4096)
def _refused_by_kernels(
    provider: str,
    found: Schema,
    version: int,
    dtypes: tuple[tuple[str, ir.DataType], ...],
    indirect: bool,
) -> str | None:
    if (found.domain, found.op_type) == ("", "Constant"):
        return None  # ONNX Runtime turns it into an initializer
    key = provider, found.domain, found.op_type
    if key in AVOIDED:
        return f"the {_short(provider)} kernel of {_called(*key[1:])} {AVOIDED[key]}"
    known = kernels().get(key, ())
    serving = [kernel for kernel in known if kernel.serves(found.since_version)]
    if any(_accepts(kernel, found, dtypes) for kernel in serving):
        return None
    may_build = (indirect and provider == _CPU) or (not known and has_body(found))
    if may_build and _session_builds(provider, found, version, dtypes):
        return None
    name, short = _called(found.domain, found.op_type), _short(provider)
    if not known and has_body(found):
        return f"no {short} kernel of {name}, and its function body does not run at opset {version}"
    if not serving:
        return f"no {short} kernel of {name} (opset {found.since_version})"
    return f"no {short} kernel of {name} for {', '.join(dtype.name.lower() for _, dtype in dtypes)}"


def _accepts(kernel: Kernel, found: Schema, dtypes: Iterable[tuple[str, ir.DataType]]) -> bool:
    """True if every dtype is one of the kernel's; a kernel may constrain an input by its name, too."""
    for var, dtype in dtypes:
        names = [var, *(f.name for f in (*found.inputs, *found.outputs) if f.type_var == var)]
        constrained = [kernel.constraints[name] for name in names if name in kernel.constraints]
        if any(type_string(dtype) not in types for types in constrained):
            return False
    return True


def _session_builds(provider: str, found: Schema, version: int, dtypes: Iterable[tuple[str, ir.DataType]]) -> bool:
    """True if ONNX Runtime opens a model of this one node with default attributes; False if that cannot be tried.

    A provider that is not here is replaced by the CPU's: which function bodies are expanded does not depend on it.
    """
    types = {type_string(dtype): dtype for dtype in ir.DataType} | dict(dtypes)
    chosen = [(f, types.get(f.type_var)) for f in found.inputs if not f.optional]
    results = [(f, types.get(f.type_var)) for f in found.outputs if not f.optional]
    required = [a for a in found.attributes.values() if a.required]
    unknown = any(dtype is None for _, dtype in (*chosen, *results))
    if unknown or any(a.type != ir.AttributeType.INT for a in required):
        return False
    import onnxruntime

    values: dict[str, Any] = {a.name: 1 for a in required}
    inputs = [onnx.helper.make_tensor_value_info(f.name, int(d), None) for f, d in chosen if d is not None]
    outputs = [onnx.helper.make_tensor_value_info(f"out_{f.name}", int(d), None) for f, d in results if d]
    node = onnx.helper.make_node(
        found.op_type,
        [i.name for i in inputs],
        [o.name for o in outputs],
        domain=found.domain,
        **values,
    )
    imports = [onnx.helper.make_opsetid("", min(ort_latest_version(), latest_version()))]
    if found.domain == "":
        imports = [onnx.helper.make_opsetid("", version)]
    else:
        imports.append(onnx.helper.make_opsetid(found.domain, version))
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "probe", inputs, outputs), opset_imports=imports, ir_version=8
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    here = provider if provider in providers() else _CPU
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, [here])
    except Exception:  # ORT raises several unrelated types; each means: it cannot
        return False
    return True
