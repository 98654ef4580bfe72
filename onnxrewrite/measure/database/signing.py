"""Signatures of rows: DSSE envelopes and ed25519 keys, by securesystemslib where that is installed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxrewrite.errors import ModelError, UsageError, one_line
from onnxrewrite.measure.database.rows import RowError
from onnxrewrite.system import files

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey

TYPE: Final = "application/vnd.onnxrewrite.measurement+json"

_LIMIT: Final = 2**14
"""Bytes of the file of a key."""


def generate(path: Path) -> Path:
    """Write a new private key, which only its owner can read, and its public key as ``PATH.pub``, whose path is given.

    Raises:
        UsageError: There is such a file already, or securesystemslib is missing.
        ModelError: They cannot be written.
    """
    _library()
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from securesystemslib.signer import CryptoSigner

    made = CryptoSigner.generate_ed25519()
    public = path.with_name(f"{path.name}.pub")
    pem = made._private_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    try:
        for target, content, mode in ((path, made.private_bytes, 0o600), (public, pem, 0o644)):
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
    except FileExistsError as error:
        raise UsageError(f"{error.filename}: there is such a file already, and a key is never replaced") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be written: {error.strerror or error}") from None
    return public


def private_key(path: str | os.PathLike[str]) -> CryptoSigner:
    """The private key in a PEM file.

    Raises:
        UsageError: It is none, or securesystemslib is missing.
    """
    _library()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    return _read(path, lambda content: CryptoSigner(load_pem_private_key(content, None)), "--key", "private")


def public_keys(paths: Sequence[str | os.PathLike[str]]) -> list[SSlibKey]:
    """The public keys in PEM files; raises as ``private_key``."""
    _library()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    return [
        _read(path, lambda content: SSlibKey.from_crypto(load_pem_public_key(content)), "--signed-by", "public")
        for path in paths
    ]


def sealed(content: bytes, key: CryptoSigner) -> dict[str, Any]:
    """The envelope of canonical bytes, as plain data."""
    from securesystemslib.dsse import Envelope

    envelope = Envelope(content, TYPE, {})
    envelope.sign(key)
    return dict(envelope.to_dict())


def opened(data: Mapping[str, Any], keys: Sequence[SSlibKey]) -> tuple[bytes, str]:
    """The contents of an envelope, and the id of the key that signed it.

    Raises:
        RowError: None of the keys has signed this.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    try:
        envelope = Envelope.from_dict({**data, "signatures": [dict(each) for each in data["signatures"]]})
        by = {signature.keyid for signature in envelope.signatures.values()}
    except Exception:  # a stranger's data: whatever the library meets in it
        raise RowError("no envelope") from None
    if envelope.payload_type != TYPE:
        raise RowError("no row")
    known = [key for key in keys if key.keyid in by]
    if not known:
        raise RowError("signed by no key that is named")
    try:
        accepted = envelope.verify(list(known), 1)
    except VerificationError:
        raise RowError("tampered with: the signature is not of it") from None
    return envelope.payload, next(iter(accepted))


def _read(path: str | os.PathLike[str], load: Any, option: str, kind: str) -> Any:
    try:
        return load(files.read_bytes(path, _LIMIT))
    except OSError as error:
        raise UsageError(f"{option} {os.fspath(path)}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # cryptography raises many classes
        raise UsageError(f"{option} {os.fspath(path)}: is no {kind} key in PEM: {one_line(error, 100)}") from None


def _library() -> None:
    try:
        import cryptography  # noqa: F401
        import securesystemslib  # noqa: F401
    except ImportError:
        raise UsageError("signatures need securesystemslib: pip install onnxrewrite[signing]") from None
