"""Transformers by way of optimum-onnx, which traces them with PyTorch's TorchScript exporter."""

import tempfile
from pathlib import Path

from optimum.exporters.onnx import onnx_export_from_model

from golden_models.exporters.structure import Structure
from golden_models.exporters.transformers_networks import (
    DECODERS,
    ENCODERS,
    IMAGES,
    TRANSLATORS,
    network,
    structure,
)

TASKS = {
    **dict.fromkeys(DECODERS, "text-generation-with-past"),
    **dict.fromkeys(ENCODERS, "feature-extraction"),
    **dict.fromkeys(IMAGES, "feature-extraction"),
    **dict.fromkeys(TRANSLATORS, "text2text-generation"),
}
NETWORKS = tuple(TASKS)


def export(name: str, path: Path) -> Structure:
    """Write a network to ``path``, as one file; what it has."""
    model = network(name)
    with tempfile.TemporaryDirectory() as folder:
        onnx_export_from_model(model, folder, task=TASKS[name], monolith=True, do_validation=False)
        written = sorted(Path(folder).glob("*.onnx"))
        assert len(written) == 1, f"{len(written)} files: {', '.join(p.name for p in written)}"
        path.write_bytes(written[0].read_bytes())
    return structure(model)
