"""Whole models in other spellings: transformations that keep what a model computes, drawn at random.

``registry.py`` says what a spelling is, ``script.py`` what it is written with; each other module but ``compose.py`` and
``whole.py`` is a family.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
