"""A PyTorch module called on arrays by name.  Imports torch; imported when needed.

Arguments may be nested, be no tensors, be given by keyword; outputs may be nested too.  Here they are flat: tensors
among the arguments have names, outputs an order.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import ml_dtypes
import numpy as np
import torch
from torch.utils import _pytree as tree

from onnxrewrite.errors import ModelError, UsageError, one_line
from onnxrewrite.reference.tolerance import is_float
from onnxrewrite.suite.frameworks.dynamic import Axes, from_axes, from_shapes
from onnxrewrite.system.arrays import Array, Feeds, Held, Outputs

_NARROW = {torch.bfloat16: ml_dtypes.bfloat16, torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn}


@dataclass(eq=False)
class Call:
    """A module with the arguments of an example.

    Attributes:
        module: In evaluation mode.
        args: All arguments by position.
        kwargs: Those that can be given by keyword only.
        names: Of the tensors among them, in order.
        shapes: The user's specification of dynamic sizes, as ``torch.export`` takes it.
    """

    module: torch.nn.Module
    args: tuple[object, ...]
    kwargs: dict[str, object]
    names: tuple[str, ...]
    shapes: object = field(default=None)

    @staticmethod
    def of(
        module: torch.nn.Module, example: object, keywords: Mapping[str, object], names: Sequence[str] | None = None
    ) -> Call:
        """Bind the arguments to the parameters of ``forward`` and name the tensors among them.

        Raises:
            UsageError: They do not fit, or there is no tensor among them.
        """
        args, named = _arguments(example, keywords)
        try:
            bound = inspect.signature(module.forward).bind(*args, **named)
        except TypeError as error:
            raise UsageError(f"the example does not fit {type(module).__name__}.forward: {error}") from None
        bound.apply_defaults()
        leaves, structure = tree.tree_flatten((bound.args, bound.kwargs))
        args, named = tree.tree_unflatten(_apart(leaves), structure)
        found = _names(module, args, named)
        if not found:
            raise UsageError("the example has no tensor, so the model would have no input")
        if names is not None and len(names) != len(found):
            raise UsageError(f"there are {len(names)} input_names for {len(found)} tensors: {', '.join(found)}")
        return Call(module, args, named, tuple(names) if names is not None else tuple(found))

    @cached_property
    def _flat(self) -> tuple[list[object], tree.TreeSpec]:
        leaves, structure = tree.tree_flatten((self.args, self.kwargs))
        return leaves, structure

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors of the example by name."""
        return dict(zip(self.names, (leaf for leaf in self._flat[0] if isinstance(leaf, torch.Tensor)), strict=True))

    @cached_property
    def feeds(self) -> Outputs:
        """The same as arrays."""
        return {name: to_array(tensor) for name, tensor in self.tensors.items()}

    def axes(self, dynamic_axes: object, dynamic_shapes: object, outputs: Sequence[str]) -> Axes:
        """The axes whose size may vary, by name of the input.

        Raises:
            UsageError: What was said does not fit the arguments.
        """
        ranks = {name: tensor.ndim for name, tensor in self.tensors.items()}
        if dynamic_axes is not None:
            if not isinstance(dynamic_axes, Mapping):
                raise UsageError("dynamic_axes must map names of inputs to axes")
            return from_axes(dynamic_axes, ranks, outputs)
        if dynamic_shapes is None:
            return {}
        self.shapes = dynamic_shapes
        bound = inspect.signature(self.module.forward).bind(*self.args, **self.kwargs)
        names = {id(tensor): name for name, tensor in self.tensors.items()}
        return from_shapes(dynamic_shapes, bound.arguments, names, ranks)

    def arguments(self, given: Mapping[str, torch.Tensor]) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments with other tensors."""
        leaves, structure = self._flat
        names = iter(self.names)
        replaced = [given[next(names)] if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, kwargs = tree.tree_unflatten(replaced, structure)
        return args, kwargs

    @cached_property
    def made(self) -> object:
        """The module's result on the example.

        Raises:
            ModelError: It does not run.
        """
        try:
            return self._outputs(self.module, self.tensors)
        except Exception as error:  # a module may raise anything
            raise ModelError(f"{type(self.module).__name__} does not run on the example: {one_line(error)}") from error

    @cached_property
    def is_flat(self) -> bool:
        """True if all arguments are positional tensors, and the outputs tensors, as both exporters take them."""
        tensors = self.made if isinstance(self.made, tuple | list) else (self.made,)
        return not self.kwargs and all(isinstance(each, torch.Tensor) for each in (*self.args, *tensors))

    def output_names(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        """A name for each tensor that the module returns: ``names``, or those of their places.

        Raises:
            ModelError: The module does not run, or returns no tensor.
            UsageError: There are not as many names as tensors.
        """
        tensors = [place for place, leaf in tree.tree_flatten_with_path(self.made)[0] if isinstance(leaf, torch.Tensor)]
        found = ["_".join(re.findall(r"\w+", tree.keystr(place))) or "output" for place in tensors]
        found = [f"output_{name}" if name[0].isdigit() else name for name in found]
        if not found:
            raise ModelError(f"{type(self.module).__name__} returns no tensor, so the model would have no output")
        if names is not None and len(names) != len(found):
            raise UsageError(f"there are {len(names)} output_names for {len(found)} tensors: {', '.join(found)}")
        return tuple(names or _different(found, self.names))

    def _outputs(self, module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> object:
        args, kwargs = self.arguments(tensors)
        with torch.no_grad():
            return module(*args, **kwargs)

    def _run(self, module: torch.nn.Module, feeds: Feeds, *, double: bool = False) -> list[Array]:
        tensors = {name: to_tensor(feeds[name], like, double=double) for name, like in self.tensors.items()}
        made = self._outputs(module, tensors)
        return [to_array(leaf) for leaf in tree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]

    # ---- what ``suite.frameworks.module_check`` asks

    def run(self, feeds: Feeds) -> Sequence[Array] | str:
        """Outputs, or in a line why there are none."""
        try:
            return self._run(self.module, feeds)
        except Exception as error:  # a module may raise anything
            return one_line(error)

    def precise(self, feeds: Feeds) -> Sequence[Array] | None:
        """Outputs computed in double precision, by a copy of the module; None where it cannot be had."""
        double = self._double
        if double is None:
            return None
        try:
            made = self._run(double, feeds, double=True)
        except Exception:  # a constant of float32 in its code, an operator without a kernel in double
            return None
        return made if all(each.dtype == np.float64 or not is_float(each.dtype) for each in made) else None

    def disturbed(self, feeds: Feeds, seed: int) -> Sequence[Array] | None:
        """Outputs with inputs and weights moved by a unit roundoff or two."""
        from onnxrewrite.reference.perturbation import perturbed_feeds

        try:
            moved = copy.deepcopy(self.module)
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for weight in (*moved.parameters(), *moved.buffers()):
                    if weight.is_floating_point():
                        unit = torch.finfo(weight.dtype).eps / 2
                        signs = torch.randint(-1, 2, weight.shape, generator=generator).to(weight)
                        weight.mul_(1 + 2 * unit * signs)
            return self._run(moved, perturbed_feeds(feeds, seed))
        except Exception:  # a module may not be copied, or raise anything
            return None

    @cached_property
    def _double(self) -> torch.nn.Module | None:
        try:
            return copy.deepcopy(self.module).double()
        except Exception:  # a module may not be copied
            return None


def must_be_module(module: object) -> None:
    """UsageError for what is no module."""
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"export takes a torch.nn.Module, not {type(module).__name__}")


def _arguments(example: object, keywords: Mapping[str, object]) -> tuple[tuple[object, ...], dict[str, object]]:
    if isinstance(example, tuple | list):
        return tuple(example), dict(keywords)
    if isinstance(example, Mapping):
        return (), {**example, **keywords}
    return (example,), dict(keywords)


def _apart(leaves: Sequence[object]) -> list[object]:
    """The same leaves, a tensor that is there twice copied: it is two inputs."""
    seen: set[int] = set()
    found = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.detach().clone() if id(leaf) in seen else leaf
            seen.add(id(leaf))
        found.append(leaf)
    return found


def _names(module: torch.nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> list[str]:
    """``x``, or ``x_0``, ``x_key`` where the argument ``x`` is nested; no name twice."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    found: list[str] = []
    for parameter, value in bound.arguments.items():
        for place, leaf in tree.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, torch.Tensor):
                parts = re.findall(r"\w+", tree.keystr(place))
                found.append("_".join([parameter, *parts]))
    return _different(found)


def _different(names: Sequence[str], others: Sequence[str] = ()) -> list[str]:
    """The same names, with a number where one is there twice or taken."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name}_{n}" for n in itertools.count(1))
        found.append(name if name not in (*found, *others) else next(n for n in numbered if n not in (*found, *others)))
    return found


@contextlib.contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[bool]:
    """The module in evaluation mode, afterwards each part in its own again; whether any was in training mode.

    Random numbers that are drawn inside leave the generator of the caller as it was.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield any(mode for _, mode in modes)
    finally:
        for part, mode in modes:
            part.training = mode


def to_array(tensor: torch.Tensor) -> Array:
    """A tensor as an array of its own."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    narrow = _NARROW.get(plain.dtype)
    if narrow is not None:
        bits = plain.view(torch.int16 if plain.element_size() == 2 else torch.uint8)
        bits_of: Array = bits.numpy().view(narrow).copy()
        return bits_of
    found: Array = plain.numpy().copy()
    return found


def to_tensor(array: Held, like: torch.Tensor, *, double: bool = False) -> torch.Tensor:
    """An array as a tensor of the dtype and on the device of another one; floats in double precision if so asked."""
    found = np.ascontiguousarray(array).reshape(np.asarray(array).shape)
    if found.dtype in (np.dtype(n) for n in _NARROW.values()):
        found = found.astype(np.float32)
    made = torch.from_numpy(found.copy()).to(like.dtype)
    return made.to(like.device, torch.float64 if double and made.is_floating_point() else made.dtype)
