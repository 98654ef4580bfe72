"""Whether a rewrite was right: structure, sampled inputs, references, numbers."""
