"""The number format of each node: half precision, sensitivity to quantization, and the best mixture."""
