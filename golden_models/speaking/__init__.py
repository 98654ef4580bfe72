"""A small decoder that speaks: trained on what the standard library says of itself, so that tokens and perplexity mean
something.

``train.py`` is the recipe.  Beside it stand what it made: ``decoder.onnx``, whose weights are stored in float16 and
computed in float32, ``tokenizer.json``, ``held_out.npy``, tokens (uint16) of texts that it was not trained on, and ``said.toml``, what
it says of them.
"""
