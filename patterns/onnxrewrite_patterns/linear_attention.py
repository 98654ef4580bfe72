"""Attention with a state instead of a softmax, and the convolution before it, by ONNX Runtime's kernels.

Why: the standard's LinearAttention and CausalConvWithState have no kernel on a CPU and run as a Scan and a dozen nodes.
Which is the faster one depends on the length: at one token a kernel takes a fifth to two fifths of the time, and the
convolution of a hundred tokens takes three times as long as its parts.  So `apply` measures.
"""

from __future__ import annotations

from onnxrewrite.rules import *

stateful = op["LinearAttention", "CausalConvWithState"](Each("operands"))


@rule(
    "linear-attention-lower",
    LOWER,
    stateful,
    allow_shared=True,
    assumes=(Assumption.FINITE, Assumption.NOT_EMPTY),
    examples=(
        Rewrites(
            "float[b,s,8] q; float[b,s,8] k; float[b,s,8] v;"
            'y, p = LinearAttention<q_num_heads=2, kv_num_heads=2, update_rule="linear">(q, k, v)',
            to="float[b,s,8] q; float[b,s,8] k; float[b,s,8] v; y, p = com.microsoft.LinearAttention"
            '<q_num_heads=2, kv_num_heads=2, update_rule="linear">(q, k, v)',
            opset=28,
        ),
        Rewrites(
            'float[b,4,s] x; float[4,1,3] w; float[b,4,2] p; y, n = CausalConvWithState<activation="silu">(x, w, , p)',
            to="float[b,4,s] x; float[4,1,3] w; float[b,4,2] p;"
            'y, n = com.microsoft.CausalConvWithState<activation="silu">(x, w, , p)',
            opset=28,
        ),
        Rejects(
            "float[b,4,s] x; float[4,1,3] w; y, n = CausalConvWithState(x, w)",
            because="standard operators only",
            opset=28,
            target="onnx",
        ),
        Rejects(
            "float[b,s,8] q; float[b,s,8] k; float[another,s,8] v;"
            'y, p = LinearAttention<q_num_heads=2, kv_num_heads=2, update_rule="linear">(q, k, v)',
            because="not known to be as many",
            opset=28,
        ),
        Rejects(
            "double[b,4,s] x; double[4,1,3] w; y, n = CausalConvWithState(x, w)",
            because="does not take T = double",
            opset=28,
        ),
    ),
)
def linear_attention_lower(m: Match, build: Builder) -> tuple[Value, ...]:
    """LinearAttention ⟶ com.microsoft.LinearAttention, and likewise CausalConvWithState."""
    node = m.node(stateful)
    if node.op_type == "LinearAttention":
        query, *others = map(m.shape, inputs_of(node)[:3])
        of_one = query is not None and all(other is not None and same_shape(query[:2], other[:2]) for other in others)
        m.require(of_one, "queries, keys and values are not known to be as many, of one batch")
    m.widen([node])
    return build.microsoft.node(node.op_type, node.inputs, m.attrs(stateful), len(node.outputs))
