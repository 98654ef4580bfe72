"""Operator schemas: the one place that knows what an operator's inputs, attributes and defaults are.

Standard domains (``""``, ``ai.onnx.ml``, ...) come from ``onnx.defs``; every other domain comes from ONNX
Runtime's registry, which is imported only when such a domain is asked for.  ``""`` and ``"ai.onnx"`` are the
same domain.  Versions are opset versions of the operator's own domain.

This module must not know what a target can run (that is ``target``), nor what any rewrite wants.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import onnx
import onnx.defs
import onnx_ir as ir

from onnxrewrite.ir.operators import TRAITS, operators


class _Unknown(enum.Enum):
    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown.UNKNOWN
"""The answer of ``attribute`` for a reference to an attribute of the enclosing function."""


@dataclass(frozen=True, slots=True)
class Formal:
    """One formal input or output.  ``types`` holds ONNX type strings such as ``"tensor(float)"``.

    ``type_var`` is the name of the type variable (``"T"``), or the type itself where the schema fixes it; a ``mixed``
    variadic one takes another type each time.
    """

    name: str
    type_var: str
    types: frozenset[str]
    optional: bool
    variadic: bool
    mixed: bool = False


AttributeValue: TypeAlias = (
    int | float | str | Sequence[int] | Sequence[float] | Sequence[str] | ir.TensorProtocol | ir.Graph | None
)
"""The contents of an attribute; None where it has none."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One formal attribute.  ``default`` is a Python value (lists are tuples), None where there is none."""

    name: str
    type: ir.AttributeType
    required: bool
    default: AttributeValue


@dataclass(frozen=True)
class Schema:
    """One version of one operator.  ``deterministic`` is False where the result is, or can be, random."""

    domain: str
    op_type: str
    since_version: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    attributes: Mapping[str, Attribute] = field(hash=False)
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    deterministic: bool


NON_DETERMINISTIC: Final[frozenset[tuple[str, str]]] = frozenset(
    {("", name) for name in operators("random")}
    | {("com.microsoft", name) for name in (
        "BiasDropout", "BitmaskDropout", "BitmaskBiasDropout", "Sampling",
    )}
)  # fmt: skip
"""(domain, operator) whose result is always treated as random.  Dropout is random only in training mode."""


FLAGS: Final[frozenset[str]] = frozenset({
    "align_corners", "allowzero", "ceil_mode", "center_point_box", "count_include_pad", "exclusive", "interleaved",
    "is_causal", "keepdims", "largest", "linear_before_reset", "noop_with_empty_axes", "onesided", "periodic",
    "reverse", "select_last_index", "sorted", "storage_order", "training_mode", "transA", "transB", "upper",
})  # fmt: skip
"""Integer attributes of the standard's operators that are 0 or 1."""


def normal_domain(domain: str) -> str:
    """The one spelling of a domain: ``"ai.onnx"`` is ``""``."""
    return "" if domain == "ai.onnx" else domain


@functools.cache
def standard_domains() -> frozenset[str]:
    """Domains whose operators the ONNX standard defines."""
    return frozenset(normal_domain(s.domain) for s in onnx.defs.get_all_schemas())


def schema(domain: str, op_type: str, version: int | None) -> Schema | None:
    """The schema in force at opset ``version`` (newest if None); None when unknown, too new or deprecated."""
    return _DECLARED.get((domain, op_type)) or _schema(normal_domain(domain), op_type, version)


def declare(found: Schema) -> None:
    """Make the schema of an operator known that neither the standard nor ONNX Runtime has; it has one version."""
    _DECLARED[found.domain, found.op_type] = found


_DECLARED: dict[tuple[str, str], Schema] = {}


@functools.lru_cache(maxsize=8192)
def _schema(domain: str, op_type: str, version: int | None) -> Schema | None:
    if domain in standard_domains():
        found = _standard(domain, op_type, version)
    else:
        versions = _contrib().get((domain, op_type), ())
        fitting = [s for s in versions if version is None or s.since_version <= version]
        found = max(fitting, key=lambda s: s.since_version, default=None)
    return None if found is None or found.deprecated else _convert(found)


def _standard(domain: str, op_type: str, version: int | None) -> Any:
    try:
        if version is None:
            return onnx.defs.get_schema(op_type, domain)
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return _squatting(op_type, version) if not domain and op_type in SQUATTERS else None


SQUATTERS: Final[frozenset[str]] = frozenset({"SimplifiedLayerNormalization"})
"""Operators of ONNX Runtime that it has in the standard's own domain, and exporters write."""


def is_squatter(domain: str, op_type: str) -> bool:
    """True if an operator is ONNX Runtime's own, although it is in the standard's domain."""
    return not normal_domain(domain) and op_type in SQUATTERS


def _squatting(op_type: str, version: int | None) -> Any:
    found = _contrib().get(("", op_type), ())
    return next((s for s in found if version is None or s.since_version <= version), None)


@functools.cache
def _contrib() -> Mapping[tuple[str, str], tuple[Any, ...]]:
    """ONNX Runtime's own operators: (domain, operator) → its versions."""
    from onnxruntime.capi import onnxruntime_pybind11_state as ort

    found: dict[tuple[str, str], tuple[Any, ...]] = {}
    for each in ort.get_all_operator_schema():
        domain = normal_domain(each.domain)
        if domain not in standard_domains() or (not domain and each.name in SQUATTERS):
            key = (domain, each.name)
            found[key] = (*found.get(key, ()), each)
    return found


def _convert(found: Any) -> Schema:
    """An ``onnx.defs`` or an ONNX Runtime schema object (their fields differ in name only) → ``Schema``."""
    domain = normal_domain(found.domain)
    op = (domain, found.name)
    attributes = {name: _attribute(name, each) for name, each in sorted(found.attributes.items())}
    return Schema(
        domain=domain,
        op_type=found.name,
        since_version=found.since_version,
        inputs=tuple(map(_formal, found.inputs)),
        outputs=tuple(map(_formal, found.outputs)),
        attributes=MappingProxyType(attributes),
        min_inputs=found.min_input,
        max_inputs=found.max_input,
        min_outputs=found.min_output,
        max_outputs=found.max_output,
        deterministic=op not in NON_DETERMINISTIC and op != ("", "Dropout"),
    )


def _formal(each: Any) -> Formal:
    return Formal(
        name=each.name,
        type_var=each.type_str if hasattr(each, "type_str") else each.typeStr,
        types=frozenset(each.types),
        optional=each.option.name == "Optional",
        variadic=each.option.name == "Variadic",
        mixed=not (each.is_homogeneous if hasattr(each, "is_homogeneous") else each.isHomogeneous),
    )


def _attribute(name: str, each: Any) -> Attribute:
    if isinstance(each, onnx.defs.OpSchema.Attribute):
        proto = each.default_value
    else:
        proto = onnx.AttributeProto()
        proto.ParseFromString(each._default_value)
    default = None
    if proto.type != onnx.AttributeProto.UNDEFINED:
        if not proto.name:
            proto.name = name
        default = plain(ir.serde.deserialize_attribute(proto).value)
    return Attribute(name, ir.AttributeType[each.type.name], bool(each.required), default)


def plain(value: object) -> Any:
    """Lists as tuples, text as str; everything else as it is."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (str, int, float)) or not isinstance(value, Iterable):
        return value
    if type(value) is tuple and value and type(value[0]) in (int, float):
        return value
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


def formal_index(schema: Schema | None, name: str) -> int | None:
    """Position of the formal input called ``name``; None where the schema has no such input."""
    if schema is None:
        return None
    return next((i for i, formal in enumerate(schema.inputs) if formal.name == name), None)


def is_number(domain: str, op_type: str, name: str) -> bool:
    """True if an input is one number, whatever the shape of the constant that holds it."""
    return not normal_domain(domain) and op_type in TRAITS and name in TRAITS[op_type].numbers


def input_names(domain: str, op_type: str) -> frozenset[str]:
    """The names that any version of an operator gives its inputs."""
    key = (normal_domain(domain), op_type)
    if key in _DECLARED:
        return frozenset(formal.name for formal in _DECLARED[key].inputs)
    if key[0] in standard_domains():
        return _standard_input_names().get(key, frozenset())
    return frozenset(formal.name for version in _contrib().get(key, ()) for formal in version.inputs)


def versions(domain: str, op_type: str) -> tuple[Schema, ...]:
    """Every version of an operator, deprecated ones too; none where nobody knows it."""
    key = (normal_domain(domain), op_type)
    if key in _DECLARED:
        return (_DECLARED[key],)
    return _versions(*key)


@functools.lru_cache(maxsize=8192)
def _versions(domain: str, op_type: str) -> tuple[Schema, ...]:
    is_standard = domain in standard_domains() and op_type not in SQUATTERS
    return tuple(map(_convert, (_history() if is_standard else _contrib()).get((domain, op_type), ())))


@functools.cache
def _history() -> Mapping[tuple[str, str], tuple[onnx.defs.OpSchema, ...]]:
    found: dict[tuple[str, str], tuple[onnx.defs.OpSchema, ...]] = {}
    for each in onnx.defs.get_all_schemas_with_history():
        key = (normal_domain(each.domain), each.name)
        found[key] = (*found.get(key, ()), each)
    return found


def known_operators(domain: str) -> frozenset[str]:
    """The names of all operators of a domain that anybody knows; none where nobody knows the domain."""
    domain = normal_domain(domain)
    if domain in standard_domains():
        return _standard_operators(domain)
    return frozenset(op_type for d, op_type in (*_contrib(), *_DECLARED) if d == domain)


@functools.cache
def _standard_operators(domain: str) -> frozenset[str]:
    return frozenset(op_type for d, op_type in _history() if d == domain) | (SQUATTERS if not domain else frozenset())


def operator_names() -> frozenset[str]:
    """The names of all standard operators, also of those that are deprecated."""
    return frozenset(op_type for _, op_type in _standard_attribute_names())


def is_parameter(domain: str, op_type: str, name: str) -> bool:
    """True if some version of a standard operator has an attribute of that name, even if it is an input in others."""
    return name in _standard_attribute_names().get((normal_domain(domain), op_type), frozenset())


@functools.cache
def _standard_attribute_names() -> Mapping[tuple[str, str], frozenset[str]]:
    found: dict[tuple[str, str], frozenset[str]] = {}
    for each in onnx.defs.get_all_schemas_with_history():
        key = (normal_domain(each.domain), each.name)
        found[key] = found.get(key, frozenset()).union(each.attributes)
    return found


@functools.cache
def _standard_input_names() -> Mapping[tuple[str, str], frozenset[str]]:
    found: dict[tuple[str, str], frozenset[str]] = {}
    for each in onnx.defs.get_all_schemas_with_history():
        key = (normal_domain(each.domain), each.name)
        found[key] = found.get(key, frozenset()).union(formal.name for formal in each.inputs)
    return found


def attribute(node: ir.Node, name: str, version: int | None) -> Any:
    """The node's value of an attribute, or the schema's default at opset ``version`` of the node's domain.

    int, float, str, tuples of these, tensors, graphs; None where it is absent and has no default (also when
    the operator is unknown); ``UNKNOWN`` for a reference to an attribute of the enclosing function.
    """
    own = node.attributes.get(name)
    if own is not None:
        return UNKNOWN if own.is_ref() else plain(own.value)
    found = schema(node.domain, node.op_type, version)
    formal = found.attributes.get(name) if found is not None else None
    return formal.default if formal is not None else None


def state_defaults(node: onnx.NodeProto, version: int) -> None:
    """Give a node of the standard the attributes that it leaves at their defaults: a body that refers to one does not
    know its default."""
    found = schema(node.domain, node.op_type, version)
    given = {a.name for a in node.attribute}
    defaults = {} if found is None else {n: a.default for n, a in sorted(found.attributes.items()) if n not in given}
    node.attribute.extend(onnx.helper.make_attribute(n, v) for n, v in defaults.items() if v is not None)


@functools.cache
def latest_version(domain: str = "") -> int:
    """Newest opset version of a standard domain that the installed ``onnx`` knows and has released."""
    domain = normal_domain(domain)
    if domain == "":
        return int(onnx.defs.onnx_opset_version())
    return max(s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain)


def newest_opset(ir_version: int) -> int:
    """The newest ai.onnx opset that came with an IR version or before it, and that ONNX Runtime promises to run."""
    came = [row[2] for row in onnx.helper.VERSION_TABLE if row[1] <= ir_version]
    return min(max(came, default=1), ort_latest_version())


@functools.cache
def ort_latest_version() -> int:
    """Newest ai.onnx opset that the installed ONNX Runtime accepts (it knows newer ones that it refuses)."""
    import onnxruntime

    schemas = onnxruntime.capi.onnxruntime_pybind11_state.get_all_operator_schema()
    newest = max(s.since_version for s in schemas if normal_domain(s.domain) == "")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for version in range(newest, 0, -1):
        x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
        y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
        graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "probe", [x], [y])
        opsets = [onnx.helper.make_opsetid("", version)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        except Exception:  # ORT raises several unrelated types; each means: not this version
            continue
        return version
    raise RuntimeError("ONNX Runtime runs no opset at all")


def is_random(node: ir.Node, version: int | None = None) -> bool:
    """True if the node's result can differ between two runs on the same inputs; unknown counts as random.

    ``version`` is the model's ai.onnx opset, needed for Dropout only; without it the graph's own import is
    taken (a subgraph may carry none).  A node with subgraphs is random if anything inside is.  An operator
    without a schema (custom, or a model-local function) is unknown, hence random.
    """
    op = (normal_domain(node.domain), node.op_type)
    if op in NON_DETERMINISTIC:
        return True
    if op in _DECLARED:
        return not _DECLARED[op].deterministic
    if version is None and node.graph is not None:
        version = node.graph.opset_imports.get("")
    if op == ("", "Dropout"):
        return _dropout_is_random(node, version)
    if schema(*op, None) is None and not _was_known(*op):
        return True
    graphs = (g for attr in node.attributes.data.values() for g in _graphs(attr))
    return any(is_random(inner, version) for graph in graphs for inner in graph)


def _was_known(domain: str, op_type: str) -> bool:
    """True if a standard operator exists that is deprecated now (Upsample, Scatter)."""
    return domain in standard_domains() and _standard(domain, op_type, None) is not None


def _graphs(attr: ir.Attr) -> Iterable[ir.Graph]:
    if attr.is_ref():
        return ()
    if attr.type == ir.AttributeType.GRAPH:
        return (attr.as_graph(),)
    return attr.as_graphs() if attr.type == ir.AttributeType.GRAPHS else ()


def _dropout_is_random(node: ir.Node, version: int | None) -> bool:
    """Opset 1 and 6: attribute ``is_test``.  7 to 11: inference only.  From 12: third input, else no."""
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    if mode is not None:
        constant = _constant(mode)
        return constant is None or constant.size != 1 or bool(constant.numpy().reshape(-1)[0])
    if version is not None and version >= 7:
        return False
    is_test = attribute(node, "is_test", version)
    return is_test is UNKNOWN or not is_test


def _constant(value: ir.Value) -> ir.TensorProtocol | None:
    """The value's tensor if it is an initializer or a Constant node's ``value``; None if not known."""
    if value.const_value is not None:
        return value.const_value
    producer = value.producer()
    if producer is None or producer.op_type != "Constant" or normal_domain(producer.domain):
        return None
    tensor = producer.attributes.get("value")
    if tensor is None or tensor.is_ref() or tensor.type != ir.AttributeType.TENSOR:
        return None
    return tensor.as_tensor()


def has_body(found: Schema | None, *, fixed: bool = False) -> bool:
    """True if the standard defines the operator by a function body: a fused form of simpler operators;
    with ``fixed``, the same one for all operands and attributes."""
    return found is not None and _has_body(found.domain, found.op_type, found.since_version, fixed)


@functools.lru_cache(maxsize=8192)
def _has_body(domain: str, op_type: str, since_version: int, fixed: bool) -> bool:
    if domain not in standard_domains() or is_squatter(domain, op_type):
        return False
    defined: Any = onnx.defs.get_schema(op_type, since_version, domain)
    return bool(defined.has_function or (not fixed and defined.has_context_dependent_function))


def oldest_version(domain: str, op_type: str, imported: int) -> int | None:
    """The oldest opset version newer than ``imported`` that has an operator which ``imported`` lacks.

    None where the operator exists at ``imported``, or nowhere.
    """
    newest = schema(domain, op_type, None)
    if schema(domain, op_type, imported) is not None or newest is None or newest.since_version <= imported:
        return None
    return next(v for v in range(imported + 1, newest.since_version + 1) if schema(domain, op_type, v) is not None)


def date(model: ir.Model) -> None:
    """Give operators that the model's opset lacks the oldest version that has them, as the raise stage does."""
    imports = model.opset_imports
    for node in model.graph.all_nodes():
        node.version = oldest_version(node.domain, node.op_type, imports.get(node.domain, 1))


def raised_to_date(model: ir.Model) -> ir.Model:
    """A copy of a model in an opset that has all of its operators, those that the raise stage writes too."""
    copy = model.clone()
    date(copy)
    for node in copy.graph.all_nodes():
        if node.version is not None:
            imported = copy.opset_imports.get(node.domain, 1)
            copy.opset_imports[node.domain] = max(imported, node.version)
    return copy
