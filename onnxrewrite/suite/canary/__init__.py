"""A model in several versions of ONNX Runtime: the drift between them, its cause, and a small model that shows it."""
