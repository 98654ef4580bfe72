"""Tools on top of ``apply``: quantization, precision, deployment, sweeps, frameworks."""
