"""Decoders: the interface of one found in its graph, and a folder that onnxruntime-genai runs."""
