"""The layer over onnx_ir: load and save, facts, schemas, targets, text, graph views."""
