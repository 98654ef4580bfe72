"""``python -m onnxrewrite`` is ``onnxrewrite``."""

import sys

from onnxrewrite.cli import main

if __name__ == "__main__":
    sys.exit(main())
