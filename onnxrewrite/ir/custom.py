"""Operators of a researcher's own: what they compute is told by a function body of simpler operators.

The body is what they are checked against, and what runs where nobody has a kernel for them: it then travels with the
model.  A library of kernels (``use_custom_ops``) is loaded into every session that is opened anywhere.  This module
must not know which rules emit them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import onnx
import onnx.inliner
import onnx.parser
import onnx_ir as ir

from onnxrewrite.errors import RuleError, UsageError
from onnxrewrite.ir import schema, shapes
from onnxrewrite.ir.bodies.conversion import CannotConvert, in_opset, same
from onnxrewrite.ir.protos import nested
from onnxrewrite.ir.schema import normal_domain
from onnxrewrite.system import files

if TYPE_CHECKING:
    import onnxruntime

VARIABLE = "ONNXREWRITE_CUSTOM_OPS"
"""The environment variable with the paths of libraries, so that child processes know of them, too."""

_FUNCTIONS_SINCE = 8
"""The IR version that has model-local functions."""

_SHORT = 1024
"""Constants of so many elements may be sizes or axes; larger ones are told by their shapes."""

_TRIED = ("FLOAT", "FLOAT16", "DOUBLE", "INT64")
"""The dtypes with which a library is asked whether it has a kernel."""

_DECLARED: dict[tuple[str, str], CustomOp] = {}


@dataclass(frozen=True, eq=False)
class CustomOp:
    """An operator of one's own, known from when this is made.

    A rule emits it by ``build.domain(DOMAIN).NAME(...)`` and matches it by ``Operators(DOMAIN).NAME(...)``.

    Args:
        domain: Its domain, such as ``my.domain``; none of the standard's, and not ONNX Runtime's.
        name: Its name, an identifier.
        function: Its computation: an onnxscript function, a function in ONNX's text syntax, or an
            ``onnx.FunctionProto``; domain and name in it do not matter.
        kernel: The same in Python, of numpy arrays, attributes as keywords; to be tried where onnxruntime-extensions
            is installed.

    Raises:
        RuleError: The function cannot be used, or another operator is declared by this name.
    """

    domain: str
    name: str
    function: object
    kernel: Callable[..., object] | None = None

    def __post_init__(self) -> None:
        if not self.domain or normal_domain(self.domain) in {*schema.standard_domains(), "com.microsoft"}:
            raise RuleError(f"custom operator {self.called}: the domain {self.domain!r} is taken; use one of your own")
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise RuleError(f"custom operator {self.called}: the name must be an identifier")
        known = _DECLARED.get(self.key)
        if known is not None and known.proto != self.proto:
            raise RuleError(f"custom operator {self.called}: is declared twice, with different functions")
        _DECLARED[self.key] = self
        schema.declare(self.signature)
        shapes.RULES[self.key] = functools.partial(_infer, self)

    @property
    def key(self) -> tuple[str, str]:
        """Domain and name."""
        return self.domain, self.name

    @property
    def called(self) -> str:
        """Both in one word."""
        return f"{self.domain}.{self.name}"

    @functools.cached_property
    def proto(self) -> onnx.FunctionProto:
        """The function, under this domain and name."""
        made = onnx.FunctionProto()
        made.CopyFrom(function_proto(self.function, f"custom operator {self.called}"))
        made.domain, made.name, made.overload = self.domain, self.name, ""
        if not made.output or not made.node:
            raise RuleError(f"custom operator {self.called}: the function computes nothing")
        return made

    @property
    def opset(self) -> int:
        """The ai.onnx opset that its function is written in."""
        return next((int(each.version) for each in self.proto.opset_import if not normal_domain(each.domain)), 1)

    def refuses(self, imports: Mapping[str, int], dtypes: Sequence[ir.DataType | None] = ()) -> str | None:
        """The reason why its body cannot be used in a model with these opset imports and operand dtypes, or None."""
        try:
            self.fitted(imports, dtypes)
        except CannotConvert as reason:
            return f"the body of {self.called} {reason}"
        return None

    def fitted(self, imports: Mapping[str, int], dtypes: Sequence[ir.DataType | None] = ()) -> onnx.FunctionProto:
        """The function in the opset of a model with these imports, for operands of these dtypes as far as known.

        Raises:
            CannotConvert: That opset cannot say it.
        """
        known = tuple(0 if dtype is None else int(dtype) for dtype in dtypes)
        return in_opset(self.proto, imports.get("", 1), known)

    @functools.cached_property
    def signature(self) -> schema.Schema:
        """The schema of the operator, as far as its function tells: every operand has a type variable of its own."""
        given = {a.name: a for a in self.proto.attribute_proto}
        names = dict.fromkeys((*self.proto.attribute, *given))
        return schema.Schema(
            domain=self.domain,
            op_type=self.name,
            since_version=1,
            inputs=tuple(_formal(i) for i in self.proto.input),
            outputs=tuple(_formal(o) for o in self.proto.output),
            attributes=MappingProxyType({n: _attribute(n, given.get(n), self.proto) for n in names}),
            min_inputs=0,
            max_inputs=len(self.proto.input),
            min_outputs=1,
            max_outputs=len(self.proto.output),
            deterministic=not any(_is_random(n) for n in nested(self.proto.node)),
        )


def declared(domain: str, op_type: str) -> CustomOp | None:
    """The operator declared by a name."""
    return _DECLARED.get((domain, op_type))


def is_own(function: onnx.FunctionProto) -> bool:
    """True if a model's function is a declared operator: has its name, and computes the same by the same nodes."""
    own = _DECLARED.get((function.domain, function.name))
    return own is not None and same(own.proto, function)


def every() -> tuple[CustomOp, ...]:
    """All operators that are declared."""
    return tuple(_DECLARED.values())


def functions() -> dict[tuple[str, str, str], ir.Function]:
    """The bodies of all operators, as a model holds its own."""
    found = (ir.serde.deserialize_function(op.proto) for op in _DECLARED.values())
    return {f.identifier(): f for f in found}


def complete(model: onnx.ModelProto, *, kernels: bool = True) -> None:
    """Give a model the bodies of declared operators that it uses and lacks; with ``kernels``, not of those for which a
    library has one."""
    if not _DECLARED:
        return
    imports = _imports(model)
    known = {(f.domain, f.name) for f in model.functions}
    dtypes = _dtypes(model)
    bodies: list[Iterable[onnx.NodeProto]] = [model.graph.node, *(f.node for f in model.functions)]
    while bodies:
        for node in nested(bodies.pop()):
            own = _DECLARED.get((node.domain, node.op_type))
            if own is None or own.key in known or (kernels and has_kernel(own)):
                continue
            known.add(own.key)
            model.functions.append(own.fitted(imports, [dtypes.get(name) for name in node.input]))
            bodies.append(own.proto.node)
            model.ir_version = max(model.ir_version, _FUNCTIONS_SINCE)


def _dtypes(model: onnx.ModelProto) -> dict[str, ir.DataType]:
    """Value to dtype, as far as the model says it."""
    graph = model.graph
    infos = (v for v in (*graph.input, *graph.value_info, *graph.output) if v.type.tensor_type.elem_type)
    found = {v.name: ir.DataType(v.type.tensor_type.elem_type) for v in infos}
    return found | {t.name: ir.DataType(t.data_type) for t in graph.initializer}


# -- from what was given ---------------------------------------------------------------------------------------------


def function_proto(given: object, called: str) -> onnx.FunctionProto:
    """A function in ONNX's text syntax, of onnxscript or in a message, as a message; RuleError for anything else."""
    if isinstance(given, onnx.FunctionProto):
        return given
    try:
        if isinstance(given, str):
            return onnx.parser.parse_function(given)
        if hasattr(given, "to_function_proto"):
            found: onnx.FunctionProto = given.to_function_proto()
            return found
    except Exception as error:  # the parser and onnxscript raise several types
        raise RuleError(f"{called}: {' '.join(str(error).split())[:300]}") from error
    raise RuleError(f"{called}: the function is a {type(given).__name__}; give ONNX text or @script()")


def _formal(name: str) -> schema.Formal:
    return schema.Formal(name=name, type_var=f"T_{name}", types=frozenset(), optional=False, variadic=False)


def _attribute(name: str, given: onnx.AttributeProto | None, function: onnx.FunctionProto) -> schema.Attribute:
    """An attribute with its default; one that has none is required, and its type is that of where it is used."""
    if given is not None:
        default = ir.serde.deserialize_attribute(given)
        return schema.Attribute(name, default.type, False, schema.plain(default.value))
    used = (a.type for n in nested(function.node) for a in n.attribute if a.ref_attr_name == name)
    return schema.Attribute(name, ir.AttributeType(next(used, onnx.AttributeProto.FLOAT)), True, None)


def _is_random(node: onnx.NodeProto) -> bool:
    key = normal_domain(node.domain), node.op_type
    own = _DECLARED.get(key)
    return (
        key in schema.NON_DETERMINISTIC
        or key == ("", "Dropout")
        or (own is not None and not own.signature.deterministic)
    )


def _imports(owner: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    return {normal_domain(o.domain): int(o.version) for o in owner.opset_import}


# -- what is known of the results ------------------------------------------------------------------------------------


def _infer(op: CustomOp, context: Any, node: ir.Node) -> None:
    """Types and shapes of a call: those of its body, for these inputs."""
    from onnxrewrite.ir.facts import Facts

    imports = dict(context.opset_imports)
    model = _call(op, node, imports)
    inlined = ir.from_proto(onnx.inliner.inline_local_functions(model))
    inside = Facts(inlined.graph, dict(inlined.opset_imports))
    named = {str(s) for v in node.inputs if v is not None and v.shape is not None for d in v.shape for s in _symbols(d)}
    for outer, inner in zip(node.outputs, inlined.graph.outputs, strict=False):
        outer.type = inner.type if inside.dtype(inner) is not None else outer.type
        if inner.shape is not None:
            outer.shape = ir.Shape([d if {str(s) for s in _symbols(d)} <= named else None for d in inner.shape])


def _symbols(dim: int | ir.SymbolicDim) -> Iterable[object]:
    """The names in a dimension; one that nobody knows has a name that nobody has."""
    if isinstance(dim, int):
        return ()
    return dim.free_symbols() if dim.value is not None else ("?",)


def _call(op: CustomOp, node: ir.Node, imports: Mapping[str, int]) -> onnx.ModelProto:
    """A model of one call, its inputs as much as is known of these."""
    inputs, constants = list[ir.Value](), list[ir.Value]()
    for place, value in enumerate(node.inputs):
        if value is None:
            continue
        tensor = value.const_value if value.const_value is not None and value.const_value.size <= _SHORT else None
        copied = ir.Value(name=f"i{place}", type=value.type, shape=value.shape, const_value=tensor)
        (inputs if tensor is None else constants).append(copied)
    known = {v.name: v for v in (*inputs, *constants)}
    read = [None if v is None else known[f"i{place}"] for place, v in enumerate(node.inputs)]
    defaults = {a.name: ir.serde.deserialize_attribute(a) for a in op.proto.attribute_proto}
    attributes = {**defaults, **node.attributes}.values()  # the inliner knows no defaults
    made = ir.Node(op.domain, op.name, read, attributes, num_outputs=len(op.proto.output))
    for place, output in enumerate(made.outputs):
        output.name = f"o{place}"
    graph = ir.Graph(
        inputs, made.outputs, nodes=[made], initializers=constants, opset_imports={**imports, op.domain: 1}, name="call"
    )
    model = ir.to_proto(ir.Model(graph, ir_version=10))
    complete(model, kernels=False)
    return model


# -- kernels ---------------------------------------------------------------------------------------------------------


def use_custom_ops(paths: Sequence[str | os.PathLike[str]]) -> None:
    """Load libraries of custom operators into every session from now on, also of processes that are started; none
    means: none.

    Raises:
        UsageError: There is no such file, or ONNX Runtime cannot load it.
    """
    import onnxruntime

    found = [os.path.abspath(p) for p in paths]
    for path, given in zip(found, paths, strict=False):
        if not files.is_regular(path):
            raise UsageError(f"--custom-ops {given}: {'is a folder' if os.path.isdir(path) else 'no such file'}")
        try:
            onnxruntime.SessionOptions().register_custom_ops_library(path)
        except Exception as error:  # ORT raises several unrelated types
            told = " ".join(str(error).split())[:300]
            raise UsageError(f"--custom-ops {given}: ONNX Runtime cannot load it: {told}") from error
    os.environ.pop(VARIABLE, None)
    if found:
        os.environ[VARIABLE] = os.pathsep.join(found)


def libraries() -> tuple[str, ...]:
    """The libraries in use."""
    return tuple(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))


def equip(options: onnxruntime.SessionOptions) -> onnxruntime.SessionOptions:
    """Session options with all libraries; every session is opened with these."""
    for path in libraries():
        options.register_custom_ops_library(path)
    return options


def has_kernel(op: CustomOp) -> bool:
    """True if a library has a kernel for an operator."""
    return bool(libraries()) and _opens(op.domain, op.name, len(op.proto.input), len(op.proto.output), libraries())


@functools.lru_cache(maxsize=256)
def _opens(domain: str, name: str, inputs: int, outputs: int, libraries: tuple[str, ...]) -> bool:
    """True if ONNX Runtime opens a model of that one node, for any of the dtypes tried."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    equip(options)
    for dtype in _TRIED:
        code = int(ir.DataType[dtype])
        info = onnx.helper.make_tensor_value_info
        given, made = ([info(f"{c}{i}", code, None) for i in range(n)] for c, n in (("i", inputs), ("o", outputs)))
        node = onnx.helper.make_node(name, [v.name for v in given], [v.name for v in made], domain=domain)
        graph = onnx.helper.make_graph([node], "probe", given, made)
        imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid(domain, 1)]
        model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        except Exception:  # ORT raises several unrelated types; each means: not so
            continue
        return True
    return False
