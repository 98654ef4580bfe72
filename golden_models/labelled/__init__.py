"""Small networks that were trained on tasks with labels, so that accuracy means something: see ``train.py``."""
