"""A folder, namespaces and programs that end together."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.testbed.namespace import Namespace
from tests.testbed.process import Process


class TemporaryBed(ABC):
    """A context manager that always removes everything at its end.

    It keeps the logs if it ends with an error.
    """

    def __init__(self, name: str) -> None:
        self._stack = contextlib.ExitStack()
        self.dir = Path(tempfile.mkdtemp(prefix=f"underpass-{name}-"))

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()
        if error is None:
            shutil.rmtree(self.dir)
        else:
            error.add_note(f"the test bed's logs: {self.dir}")

    @abstractmethod
    def _build(self) -> None:
        """Make its parts."""

    def start(
        self,
        name: str,
        argv: Sequence[str],
        namespace: Namespace | None = None,
        env: dict[str, str] | None = None,
    ) -> Process:
        """Start a program that ends with the context."""
        process = Process(name, argv, log_dir=self.dir, namespace=namespace, env=env)
        self._stack.callback(process.stop)
        return process
