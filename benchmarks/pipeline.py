"""From an export to a deployed model: what the pipeline makes of it, against what ONNX Runtime and its quantizer make of it.

    python -m benchmarks.pipeline [--only models|sensitivity|gate|sweep] [--threads N] [--seconds N] [--json FILE]

*models*: a BERT, a GPT-2 with past, a ViT, a YOLO-like and a mobile CNN, of the shared models where these are there, else of
``golden_models``.  All variants of a model run by turns, with all of ONNX Runtime's optimizations: the export, the
pipeline with exact stages only, the whole pipeline, and ``onnxruntime.quantization`` used plainly on the export, with
the same data: dynamic, and static QDQ.
"""
