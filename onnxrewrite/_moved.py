"""Names of modules, and of the face, before version 0.2: still found, with a warning that tells the new name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

MOVED: Final = {
    "certify": "certificate.repetition",
    "deploy.artifact": "suite.deploy.artifact",
    "deploy.outcome": "suite.deploy.outcome",
    "deploy.pipeline": "suite.deploy.pipeline",
    "deploy.stage": "suite.deploy.stage",
    "frameworks": "suite.frameworks",
    "frameworks.exported": "suite.frameworks.exported",
    "frameworks.torch": "suite.frameworks.torch",
    "hardware": "runtime",
    "hardware.machine": "runtime.machine",
    "ir.io": "io",
    "measure.bench": "suite.bench.benchmark",
    "measure.cached": "runtime.cached",
    "measure.deployment": "runtime.deployment",
    "measure.profile": "measure.profiling",
    "measure.session": "runtime.opening",
    "measure.sessions": "runtime.settings",
    "pipeline": "api.application",
    "precision": "suite.precision",
    "precision.exclude": "suite.precision.exclude",
    "precision.search": "suite.precision.search",
    "quality": "suite.quality",
    "quality.closeness": "suite.quality.closeness",
    "quality.data": "suite.quality.data",
    "quality.gate": "suite.quality.gate",
    "quantization": "suite.quantization",
    "quantization.settings": "suite.quantization.quantize_settings",
    "report.html.deployment": "report.html.deploy_page",
    "result": "api.application",
    "sweeping": "suite.sweeping",
    "sweeping.work": "suite.sweeping.tasks",
    "verify": "checks",
    "verify.respell": "ruletest.metamorphic",
    "verify.ring": "ruletest.modular",
    "whynot": "explanation",
    "whynot.explain": "api.explanations",
}
"""What the documentation named, without the name of the package, and what it is called now."""


SPACES: Final = {
    name: space
    for space, names in (
        (
            "rules",
            "AnyNode Assumption Attr Builder Call Const CustomOp Cut Dim Each FLOATS Facts INTS Match Operators "
            "Rejects Rewrites Rule RuleSet SQRT2 Scalar Stage TRAITS Term Value Var any_of at_least einsum_labels "
            "epsilon is_cut_to microsoft op operators parameter passed resolve same_dim same_shape use_custom_ops",
        ),
        (
            "deploy",
            "Gate Pipeline QuantizeSettings exclusion export mixed_precision quantize search_precision sensitivity "
            "sweep to_half within_latency",
        ),
        ("sessions", "CachedSession Deployment Machine machine read_options write_options"),
    )
    for name in names.split()
}
"""Names of the public face before version 0.2, and the name spaces that have them now."""


def name_of_face(name: str) -> Any:
    """A name of the face that a name space has now; AttributeError if it never was one."""
    if name not in SPACES:
        raise AttributeError(f"module {__package__!r} has no attribute {name!r}")
    space = f"{__package__}.{SPACES[name]}"
    warnings.warn(f"{__package__}.{name} is {space}.{name} now", DeprecationWarning, stacklevel=3)
    return getattr(importlib.import_module(space), name)


class _Finder(MetaPathFinder, Loader):
    """Finds a module under its old name: a stand-in that has what the module has."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != __package__ or name not in MOVED:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        package, _, name = module.__name__.partition(".")
        now = f"{package}.{MOVED[name]}"
        warnings.warn(f"{module.__name__} is {now} now", DeprecationWarning, stacklevel=2)
        module.__dict__["__getattr__"] = importlib.import_module(now).__getattribute__


def install() -> None:
    """Look for modules under their old names where there is none of that name."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())
