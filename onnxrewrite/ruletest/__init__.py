"""Tests of rules on generated graphs: fuzzing, metamorphic variants and mutations, modular evaluation."""
