"""The installed ONNX Runtime: its version and build, and which execution providers start on this machine.

A provider that is built in may still not start: a driver or a library is missing.  ONNX Runtime then takes the CPU and
says nothing, so each is tried on a model of one node.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnxrewrite.errors import one_line
from onnxrewrite.ir import target
from onnxrewrite.runtime.providers import on_request
from onnxrewrite.system.plain import Json

CPU = "CPUExecutionProvider"

_PACKAGES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-qnn")


@dataclass(frozen=True)
class Device:
    """A device found by ONNX Runtime: the provider that would use it, its kind (``CPU``, ``GPU``, ``NPU``), vendor."""

    provider: str
    kind: str
    vendor: str


@dataclass(frozen=True)
class Runtime:
    """One installation of ONNX Runtime.

    Attributes:
        version: Of ONNX Runtime.
        build: Its own description of its build.
        packages: The distributions that it may come from, to their versions; more than one overwrite each other.
        providers: Execution providers that are built in, in ONNX Runtime's order.
        failed: Those that do not start here, to the reason.
        devices: The devices that it found.
    """

    version: str
    build: str
    packages: Mapping[str, str]
    providers: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()

    @property
    def started(self) -> tuple[str, ...]:
        """Providers that start here, in ONNX Runtime's order."""
        return tuple(each for each in self.providers if each not in self.failed)

    @property
    def preferred(self) -> tuple[str, ...]:
        """Providers that a session gets where nothing else is said: those that start, but for those on request."""
        return tuple(each for each in self.started if not on_request(each)) or (CPU,)

    def to_json(self) -> dict[str, Json]:
        """Plain data."""
        return {
            "version": self.version,
            "build": self.build,
            "packages": dict(self.packages),
            "providers": {each: self.failed.get(each, "starts") for each in self.providers},
            "preferred": list(self.preferred),
            "devices": [asdict(each) for each in self.devices],
        }


@functools.cache
def runtime() -> Runtime:
    """The installed ONNX Runtime; its providers are tried once a process."""
    available = target.providers()
    return Runtime(
        version=target.ort_version(),
        build=build(),
        packages=versions_of(_PACKAGES),
        providers=available,
        failed={name: reason for name in available if (reason := why_not_started(name))},
        devices=_devices(),
    )


def build() -> str:
    """ONNX Runtime's own description of its build; empty in versions that have none."""
    import onnxruntime

    return str(getattr(onnxruntime, "get_build_info", str)()).removeprefix("ORT Build Info: ")


def preferred() -> tuple[str, ...]:
    """``runtime().preferred``, without trying those providers that are used on request only."""
    return tuple(e for e in target.providers() if not on_request(e) and not why_not_started(e)) or (CPU,)


def versions_of(names: tuple[str, ...]) -> dict[str, str]:
    """Those of the distributions that are installed, to their versions."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@functools.cache
def why_not_started(provider: str) -> str:
    """The reason why a provider that is built in does not start on this machine; empty if it does."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    node = helper.make_node("Relu", ["x"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    model = _model([node], ends[:1], ends[1:])
    try:
        started = onnxruntime.InferenceSession(model, options, providers=[provider]).get_providers()
    except Exception as error:  # ORT raises a dozen classes, one a status code
        return one_line(error)
    return "" if provider in started else "a driver or a library of it is missing; ONNX Runtime takes the CPU"


@functools.cache
def saturates() -> bool:
    """True if a product of uint8 activations and int8 weights saturates at 16 bits; tried, on the CPU.

    Without 8-bit dot products x86 adds pairs of products in 16 bits (``VPMADDUBSW``), which 2·255·127 exceeds.
    """
    import onnxruntime

    terms = 64
    weights = helper.make_tensor("w", TensorProto.INT8, [terms, 16], [127] * (16 * terms))
    ends = [("x", TensorProto.UINT8, [8, terms]), ("y", TensorProto.INT32, [8, 16])]
    x, y = (helper.make_tensor_value_info(*each) for each in ends)
    model = _model([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], [x], [y], [weights])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=[CPU])
    found = session.run(None, {"x": np.full([8, terms], 255, np.uint8)})[0]
    return bool((found != terms * 255 * 127).any())


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: list[onnx.TensorProto] | None = None,
) -> bytes:
    graph = helper.make_graph(nodes, "probe", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def _devices() -> tuple[Device, ...]:
    """The devices that ONNX Runtime found; empty in versions that do not tell."""
    import onnxruntime

    try:
        found = onnxruntime.get_ep_devices()
    except Exception:  # AttributeError before 1.22; a plug-in may raise anything
        return ()
    return tuple(Device(str(d.ep_name), str(d.device.type).rpartition(".")[2], str(d.device.vendor)) for d in found)
