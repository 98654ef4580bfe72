"""Regions of a corpus that other operators compute as well, and the rules that say so: ``discover``."""
