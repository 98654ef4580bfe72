"""A report of ``optimize`` made up as plain data: six stages, with all that can become of a proposal."""

from __future__ import annotations

from typing import Any

Data = dict[str, Any]

SETTING = {"provider": "CPUExecutionProvider", "threads": 4, "level": "all", "without": []}
BROKEN = {"cosine": 0.2, "broken": 7, "largest": 3.0, "snr": -1.0}


def interval(median: float, spread: float = 0.04) -> Data:
    return {"median": median, "low": median * (1 - spread), "high": median * (1 + spread)}


def closeness(cosine: float = 1.0, **given: Any) -> Data:
    plain = {"cosine": cosine, "snr": 41.2, "largest": 0.013, "mean": 4.2e-4, "agreement": None}
    return {**plain, "top1": None, "topk": None, "broken": 0, **given}


def quality(cosine: float, names: tuple[str, ...] = ("logits", "mask"), **given: Any) -> Data:
    outputs = {names[0]: closeness(cosine, top1=0.9922, topk=0.987), **{n: closeness(0.99999) for n in names[1:]}}
    found = {"outputs": outputs, "worst": names[0], "drop": 1 - cosine, "metric": None, "baseline": None}
    return {**found, "data": "data.npz", "generated": False, "doubts": [], **given}


def trial(
    how: str, ratio: float, size: int, found: Data, verdict: Data, *, original: bool = False, **given: Any
) -> Data:
    metrics = {
        "latency": interval(0.0123 * ratio),
        "ratio": interval(ratio, 0.0 if original else 0.04),
        "step": None if original else interval(0.9),
        "throughput": 1 / (0.0123 * ratio),
        "creation": interval(0.2 * ratio),
        "size": size,
        "memory": 3 * size,
        "quality": found,
    }
    return {
        "file": "a.onnx",
        "how": how,
        "setting": SETTING,
        "facts": {},
        "metrics": metrics,
        "verdict": verdict,
        **given,
    }


def verdict(kept: bool, reason: str, close: bool = False) -> Data:
    return {"kept": kept, "reason": reason, "close": close}


def step(stage: str, trials: list[Data], kept: int | None, reason: str = "", state: str | None = None) -> Data:
    return {
        "stage": stage,
        "state": state or ("kept" if kept is not None else "taken back"),
        "reason": reason or (trials[kept or 0]["verdict"]["reason"] if trials else ""),
        "close": any(t["verdict"]["close"] for t in trials),
        "resumed": False,
        "seconds": 3.2,
        "kept": kept,
        "trials": trials,
    }


def parts(*found: tuple[str, float]) -> list[Data]:
    return [{"operator": name, "kernels": 12, "seconds": seconds} for name, seconds in found]


def report(**given: Any) -> Data:
    """What ``Outcome.to_json`` returns of a pipeline that brought something; ``given`` replaces parts of it."""
    baseline = trial("as it was", 1.0, 437_900_000, quality(1.0), verdict(True, "the original"), original=True)
    facts = {"rewrites": {"gelu-erf": 12, "layer-norm": 25}, "notes": ["what was measured is close"]}
    rewritten = trial("37 rewrites", 0.71, 437_100_000, quality(1.0), verdict(True, "0.71 of the time"), facts=facts)
    half = trial(
        "float16 weights", 0.74, 219_000_000, quality(0.99999), verdict(False, "it takes 1.04 times as long", True)
    )
    dynamic = trial(
        "dynamic int8", 0.44, 110_500_000, quality(0.9974), verdict(False, "static int8, 9 nodes float is better")
    )
    static = trial(
        "static int8, entropy",
        0.36,
        110_900_000,
        quality(0.962),
        verdict(False, "the cosine similarity of logits is 0.9620, less than 0.98"),
    )
    partly = trial(
        "static int8, 9 nodes float", 0.4, 140_000_000, quality(0.9921), verdict(True, "0.56 of the time", True)
    )
    broken = trial(
        "static uint8, minmax",
        0.37,
        110_900_000,
        quality(0.2, drop=1.0),
        verdict(False, "7 elements of logits are not finite, or of another shape"),
    )
    broken["metrics"]["quality"]["outputs"]["logits"] = closeness(**BROKEN)
    basic = trial(
        "optimized by ONNX Runtime: basic",
        1.93,
        140_000_000,
        quality(0.9921),
        verdict(False, "it takes 4.83 times as long"),
    )
    steps = [
        step("rewrite", [rewritten], 0),
        step("float16", [half], None),
        step("quantize", [dynamic, static, partly, broken], 2),
        step("transformers", [], None, "there is nothing to do: no attention is left"),
        step("session", [basic], None),
        step("prune", [], None, "the target of 2 times is met without it", "skipped"),
    ]
    return {
        "model": "exports/bert-base/model.onnx",
        "data": {"source": "data.npz", "samples": 128, "generated": False},
        "binding": {"batch": 1, "seq": 128},
        "gate": {"max_drop": 0.02, "min_snr": None, "min_top1": 0.99, "max_error": None},
        "target": 2.0,
        "target_met": True,
        "speedup": 2.5,
        "baseline": baseline,
        "steps": steps,
        "final": partly,
        "files": {"model": "deployed/model.onnx", "report": "deployed/report.json", "page": "deployed/report.html", "run": "deployed/run.py"},
        "program": '"""Runs it."""\n\nimport onnxruntime as ort\n\nsession = ort.InferenceSession("model.onnx")\n',
        "operators": {
            "before": parts(("MatMul", 0.0071), ("Add", 0.0012), ("Erf", 0.001), ("Softmax", 0.0008), ("Transpose", 0.0006), ("Mul", 0.0005), ("Div", 0.0004), ("Gather", 0.0002), ("ReduceMean", 0.0002), ("Sqrt", 0.0001)),
            "after": parts(("QLinearMatMul", 0.0021), ("MatMul", 0.0009), ("Attention", 0.0007), ("SkipLayerNormalization", 0.0003), ("Gelu", 0.0002)),
            "missing": "",
        },
        "versions": {"onnxrewrite": "0.1.0", "onnxruntime": "1.23.0", "python": "3.11.2", "platform": "Linux x86_64"},
        "seconds": 61.0,
        "notes": [],
        **given,
    }  # fmt: skip


def nothing_gained() -> Data:
    """No stage brought anything, on data that were made up."""
    worse = trial("3 rewrites", 1.2, 437_000_000, quality(1.0), verdict(False, "it takes 1.20 times as long"))
    baseline = report()["baseline"]
    return report(
        steps=[step("rewrite", [worse], None)],
        final=baseline,
        speedup=1.0,
        target=None,
        target_met=None,
        data={"source": "generated", "samples": 16, "generated": True},
        operators={"before": [], "after": [], "missing": "the profile failed: no space left on device"},
        binding={},
        notes=["one note"],
    )
