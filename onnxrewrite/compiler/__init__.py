"""From a model to a checked, optimized model: the rewrite loop, the opset, the speed guard, the result."""
