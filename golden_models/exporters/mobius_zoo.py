"""Transformers by way of mobius, which builds the graph from the configuration and fills in the weights."""

from pathlib import Path

import onnx_ir as ir
import transformers as hf
from mobius import apply_weights, build_from_module, registry
from mobius._config_resolver import _config_from_hf, _default_task_for_model

from golden_models.exporters.structure import Structure
from golden_models.exporters.transformers_networks import DECODERS, ENCODERS, IMAGES, network, structure

NETWORKS = (*DECODERS, *ENCODERS, *IMAGES)


def export(name: str, path: Path) -> Structure:
    """Write a network to ``path``; what it has."""
    model = network(name)
    ir.save(built(model), path)
    return structure(model)


def built(model: hf.PreTrainedModel) -> ir.Model:
    """The graph that mobius makes of a network's configuration, with the network's weights."""
    kind = model.config.model_type
    maker = registry.get(kind)
    config = _config_from_hf(model.config, module_class=maker)
    module = maker(config)
    package = build_from_module(module, config, task=_default_task_for_model(kind))
    assert list(package) == ["model"], f"several models: {', '.join(package)}"
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    apply_weights(package["model"], module.preprocess_weights(weights))
    empty = [name for name, value in package["model"].graph.initializers.items() if value.const_value is None]
    assert not empty, f"no weights for {', '.join(empty[:3])}"
    return package["model"]
