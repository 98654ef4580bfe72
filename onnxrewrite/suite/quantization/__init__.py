"""Quantization: onnxruntime.quantization between two rewrites, judged against the float model."""
