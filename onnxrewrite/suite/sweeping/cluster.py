"""``dask://HOST:PORT`` and ``dask://local``: executors on clusters of dask.distributed, where that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager

from onnxrewrite.errors import UsageError
from onnxrewrite.runtime.session import one_line

SCHEME = "dask://"
LOCAL = "dask://local"

_SECONDS = 10
"""To reach a scheduler."""


@contextmanager
def connected(spec: str, jobs: int) -> Iterator[Executor]:
    """An executor on the cluster that ``spec`` names, until this is left.

    Args:
        spec: ``dask://HOST:PORT``, a scheduler; models and output folder must have the same paths on its workers.
            ``dask://local``: a cluster of this machine that lasts as long as the sweep.
        jobs: Processes of a local cluster.

    Raises:
        UsageError: It is no such name, dask.distributed is not installed, or there is no such cluster.
    """
    if not spec.startswith(SCHEME) or spec == SCHEME:
        raise UsageError(f"--executor {spec}: write dask://HOST:PORT or dask://local")
    try:
        import distributed
    except ImportError:
        raise UsageError(f"--executor {spec}: needs dask.distributed: pip install onnxrewrite[dask]") from None
    with ExitStack() as stack:
        try:
            where = f"tcp://{spec.removeprefix(SCHEME)}"
            if spec == LOCAL:  # jobs are processes of their own: what the worker itself takes says nothing
                where = stack.enter_context(
                    distributed.LocalCluster(
                        n_workers=jobs, threads_per_worker=1, memory_limit=0, dashboard_address=None
                    )
                )
            client = stack.enter_context(distributed.Client(where, timeout=_SECONDS, set_as_default=False))
        except (OSError, ValueError, RuntimeError) as error:
            raise UsageError(f"--executor {spec}: cannot be reached: {one_line(error)}") from None
        yield client.get_executor(pure=False)
