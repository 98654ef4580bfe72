"""Literals: their dtype, which the operator's schema decides, and their values."""

from __future__ import annotations

import hashlib
import weakref
import zlib
from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol

import numpy as np
import onnx
import onnx_ir as ir

from onnxrewrite.ir.schema import Formal, Schema, normal_domain
from onnxrewrite.ir.text.syntax import BOOL_WORDS, DTYPES, FLOAT_WORDS, AttrType, Literal, Token
from onnxrewrite.system.arrays import Array


class Fail(Protocol):
    """Raises the one-line error that names a token and its place."""

    def __call__(self, what: str, at: Token) -> NoReturn: ...


def opset_of(opsets: Mapping[str, int], domain: str) -> int | None:
    """The imported version of ``domain``, None where the text does not import it."""
    versions = {normal_domain(name): version for name, version in opsets.items()}
    return versions.get(normal_domain(domain))


def literal_dtype(
    schema: Schema | None,
    position: int,
    dtypes: Sequence[ir.DataType | None],
    *,
    is_fractional: bool,
) -> ir.DataType:
    """The dtype of a number without a type that stands as operand ``position``.

    ``dtypes`` are those of all operands of the node, None where unknown.  In this order: the dtype of another
    operand under the same type variable; float, int64, or the first of ONNX's dtypes that the schema allows.
    An operator without a schema is taken to have one type variable for everything.
    """
    others = [dtype for at, dtype in enumerate(dtypes) if at != position and shares_type(schema, position, at)]
    bound = next((dtype for dtype in others if dtype is not None), None)
    if schema is None:
        default = ir.DataType.FLOAT if is_fractional else ir.DataType.INT64
        return default if bound is None or (is_fractional and not bound.is_floating_point()) else bound
    if bound is not None:
        return bound
    formal = formal_of(schema, position)
    names = () if formal is None else formal.types
    allowed = sorted(DTYPES[name[7:-1]] for name in names if name.startswith("tensor("))
    preferred = (dtype for dtype in (ir.DataType.FLOAT, ir.DataType.INT64) if dtype in allowed)
    return next(preferred, allowed[0] if allowed else ir.DataType.FLOAT)


def shares_type(schema: Schema | None, one: int, other: int) -> bool:
    """True if the schema gives two operands of a node the same dtype, or if there is no schema."""
    if schema is None:
        return True
    a, b = formal_of(schema, one), formal_of(schema, other)
    if a is None or b is None or a.type_var != b.type_var:
        return False
    has_body = any(each.type is AttrType.GRAPH for each in schema.attributes.values())
    return not (a.variadic and has_body)  # what a Loop carries, each with a type of its own


def formal_of(schema: Schema, position: int) -> Formal | None:
    """The formal parameter of operand ``position``; the last one repeats where it is variadic."""
    if position < len(schema.inputs):
        return schema.inputs[position]
    last = schema.inputs[-1] if schema.inputs else None
    return last if last is not None and last.variadic else None


def strings_of(tensor: ir.TensorProtocol) -> list[bytes]:
    """The elements of a string tensor, in order; NumPy would drop zero bytes at their ends."""
    return list(ir.to_proto(tensor).string_data)


_HASHES: weakref.WeakKeyDictionary[ir.TensorProtocol, str] = weakref.WeakKeyDictionary()
"""Tensors do not change, see ``printer``."""


def tensor_hash(tensor: ir.TensorProtocol) -> str:
    """``sha256:`` and 12 hexadecimal digits over dtype, shape and bytes of a tensor; it is computed once."""
    known = _HASHES.get(tensor)
    if known is None:
        known = _HASHES[tensor] = _hashed(tensor)
    return known


def _hashed(tensor: ir.TensorProtocol) -> str:
    state = hashlib.sha256(f"{tensor.dtype.name}{list(tensor.shape.numpy())}".encode())
    if tensor.dtype is ir.DataType.STRING:
        for item in strings_of(tensor):
            state.update(len(item).to_bytes(8, "little") + item)
    elif tensor.dtype.itemsize < 1:  # several elements in a byte
        state.update(tensor.tobytes())
    else:
        state.update(np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8).data)
    return f"sha256:{state.hexdigest()[:12]}"


class Values:
    """The values of literals, refused with a line that names the token where they are none."""

    def __init__(self, fail: Fail, weights: Mapping[str, Array]) -> None:
        self.fail = fail
        self.weights = weights

    @staticmethod
    def own_dtype(literal: Literal) -> ir.DataType:
        """The dtype that it has by itself: ``1`` int64, ``0.5`` float, ``true`` bool, ``"a"`` string."""
        if literal.dtype is not None:
            return literal.dtype
        kinds = {"bool" if t.kind == "id" and t.text in BOOL_WORDS else t.kind for t in literal.values}
        if kinds <= {"int"}:
            return ir.DataType.INT64
        if len(kinds) == 1 and kinds <= {"bool", "str"}:
            return ir.DataType.BOOL if "bool" in kinds else ir.DataType.STRING
        return ir.DataType.FLOAT

    def tensor(
        self, literal: Literal, dtype: ir.DataType, name: str, *, seed: str = "", has_bits: bool = False
    ) -> onnx.TensorProto:
        """The tensor of a literal.

        ``has_bits`` is ONNX's own reading: in braces, a whole number that stands for a floating-point value
        of 16 bits or less is its bit pattern.
        """
        if literal.form == "external":
            proto = onnx.TensorProto(name=name, data_type=int(dtype), dims=literal.dims)
            proto.data_location = onnx.TensorProto.EXTERNAL
            proto.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in literal.location)
            return proto
        _, array = self.array(literal, dtype, seed or name, has_bits=has_bits)
        return ir.to_proto(make_tensor(array, dtype, name))

    def array(
        self, literal: Literal, dtype: ir.DataType, seed: str, *, has_bits: bool = False
    ) -> tuple[ir.DataType, Array]:
        """The values of a literal, as ``dtype``, in its shape."""
        dims = literal.dims if literal.dims is not None else (len(literal.values),) * literal.braces
        if literal.form == "external":
            return dtype, np.empty(dims, np.uint8)
        if literal.form == "dummy":
            return dtype, self.dummy(literal, dtype, dims, seed)
        if literal.form == "hash":
            return dtype, self.weight(literal, dtype, dims, seed)
        is_complex = dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)
        count = int(np.prod(dims)) * (2 if is_complex else 1)
        if len(literal.values) != count:
            self.fail(f"{len(literal.values)} values for a shape of {count}", literal.at)
        return dtype, self.numbers(literal.values, dtype, has_bits and literal.braces).reshape(dims)

    def numbers(self, values: Sequence[Token], dtype: ir.DataType, has_bits: bool) -> Array:
        target = dtype.numpy()
        if dtype is ir.DataType.STRING:
            return np.array([self.string(value) for value in values], dtype=object)
        if dtype is ir.DataType.BOOL:
            return np.array([self.truth(value) for value in values], dtype=target)
        if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
            parts = np.array([self.fraction(value, None) for value in values])
            return (parts[::2] + 1j * parts[1::2]).astype(target)
        if not dtype.is_floating_point():
            low, high = _integer_range(dtype)
            whole = [self.whole(value, low, high, dtype.name.lower()) for value in values]
            return np.array(whole, dtype=np.uint64 if dtype is ir.DataType.UINT64 else np.int64).astype(target)
        if has_bits and dtype.bitwidth in (8, 16) and all(value.kind == "int" for value in values):
            bits = [self.whole(value, 0, 2**dtype.bitwidth - 1, "bit pattern") for value in values]
            return np.array(bits, dtype=f"uint{dtype.bitwidth}").view(target)
        return np.array([self.fraction(value, dtype) for value in values], dtype=np.float64).astype(target)

    def string(self, value: Token) -> bytes:
        if value.kind != "str":
            self.fail("not a string", value)
        return value.text.encode("utf-8", "surrogateescape")

    def truth(self, value: Token) -> bool:
        if value.text not in ("true", "false", "0", "1"):
            self.fail("not a bool", value)
        return value.text in ("true", "1")

    def whole(self, value: Token, low: int, high: int, what: str) -> int:
        if value.kind != "int" or not low <= int(value.text) <= high:
            self.fail(f"not a value of {what}", value)
        return int(value.text)

    def fraction(self, value: Token, dtype: ir.DataType | None) -> float:
        """A floating-point number, refused where ``dtype`` has no finite value near it."""
        if value.kind not in ("int", "float") and value.text.lower() not in FLOAT_WORDS:
            self.fail("not a number", value)
        number = float(value.text)
        if dtype is not None:
            with np.errstate(all="ignore"):
                held = float(np.float64(number).astype(dtype.numpy()))
            if not (held == number or np.isfinite(held) or (held != held and number != number)):
                self.fail(f"not a value of {dtype.name.lower()}", value)
        return number

    def dummy(self, literal: Literal, dtype: ir.DataType, dims: Sequence[int], seed: str) -> Array:
        """Standard normal values, for integers 0 to 7, always the same for one name."""
        random = np.random.default_rng(zlib.crc32(seed.encode()))
        if dtype.is_floating_point():
            return random.standard_normal(dims).astype(dtype.numpy())
        if dtype is ir.DataType.BOOL or dtype.is_integer():
            high = min(8, 2 ** (dtype.bitwidth - 1)) if dtype is not ir.DataType.BOOL else 2
            return random.integers(0, high, dims).astype(dtype.numpy())
        return self.fail(f"no dummy values of {dtype.name.lower()}", literal.at)

    def weight(self, literal: Literal, dtype: ir.DataType, dims: tuple[int, ...], name: str) -> Array:
        """The array that ``weights`` holds for a hash, by the value's name or by the hash itself."""
        (digest,) = literal.values
        found = self.weights.get(name, self.weights.get(digest.text))
        if found is None:
            self.fail(f"a hash is no value; pass weights={{'{name}': array}}", digest)
        array = np.ascontiguousarray(found).reshape(np.shape(found))
        if dtype is ir.DataType.STRING:
            array = array.astype(object)
        if array.dtype != dtype.numpy() or array.shape != dims:
            self.fail(
                f"weights['{name}'] is {array.dtype}{list(array.shape)}, which is not the type here",
                literal.at,
            )
        actual = tensor_hash(make_tensor(array, dtype, name))
        if actual != digest.text:
            self.fail(f"weights['{name}'] has {actual}, which is not the hash here", digest)
        return array


def make_tensor(array: Array, dtype: ir.DataType, name: str) -> ir.TensorProtocol:
    if dtype is ir.DataType.STRING:
        return ir.StringTensor(array, shape=ir.Shape(array.shape), name=name)
    return ir.Tensor(array, dtype=dtype, name=name)


def _integer_range(dtype: ir.DataType) -> tuple[int, int]:
    if dtype.is_signed():
        return -(2 ** (dtype.bitwidth - 1)), 2 ** (dtype.bitwidth - 1) - 1
    return 0, 2**dtype.bitwidth - 1


def tensor_type(dtype: ir.DataType, dims: Sequence[int] | None = None) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(int(dtype), dims)
