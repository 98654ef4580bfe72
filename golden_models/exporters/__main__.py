"""Export the networks of a zoo, and write beside each what it has.

    python -m golden_models.exporters ZOO ... [--only NAME ...] [-o FOLDER]

Zoos: keras (tf2onnx), flax (jax2onnx), optimum, mobius, genai (onnxruntime-genai's builder).  With a FOLDER, every network
goes to FOLDER/ZOO/NAME.onnx with NAME.toml.  Without one, those whose file is small renew the archive ZOO.tar.xz.
What fails is told in a line and left out.
"""

import argparse
import importlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from golden_models.archive import pack

HERE = Path(__file__).parent
ZOOS = ("keras", "flax", "optimum", "mobius", "genai")

SMALL = 250_000
"""So many bytes a file of an archive may have."""


def exported(zoo: str, only: Sequence[str], folder: Path) -> Iterator[Path]:
    """Each network of a zoo that goes, with what it has beside it."""
    module = importlib.import_module(f"golden_models.exporters.{zoo}_zoo")
    folder.mkdir(parents=True, exist_ok=True)
    for name in only or module.NETWORKS:
        path = folder / f"{name}.onnx"
        try:
            structure = module.export(name, path)
        except Exception as error:  # whatever an exporter raises
            path.unlink(missing_ok=True)
            first = next(iter(str(error).splitlines()), "")
            print(f"{zoo}/{name}: failed: {type(error).__name__}: {first[:200]}", flush=True)
            continue
        path.with_suffix(".toml").write_text(structure.toml(), encoding="utf-8")
        print(f"{zoo}/{name}: {path.stat().st_size / 1024:.0f} KiB", flush=True)
        yield path


def renew(zoo: str, only: Sequence[str]) -> None:
    """Pack the small networks of a zoo."""
    with tempfile.TemporaryDirectory() as folder:
        small = [path for path in exported(zoo, only, Path(folder)) if path.stat().st_size <= SMALL]
        files = [file for path in small for file in (path, path.with_suffix(".toml"))]
        pack(HERE / f"{zoo}.tar.xz", {file.name: file.read_bytes() for file in files})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("zoos", nargs="+", choices=ZOOS, metavar="ZOO")
    options.add_argument("--only", nargs="+", default=(), metavar="NAME", help="networks (default: all)")
    options.add_argument("-o", "--output", type=Path, metavar="FOLDER")
    given = options.parse_args()
    for zoo in given.zoos:
        if given.output is None:
            renew(zoo, given.only)
        else:
            list(exported(zoo, given.only, given.output / zoo))


if __name__ == "__main__":
    main()
