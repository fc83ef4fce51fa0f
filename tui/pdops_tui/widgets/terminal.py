"""A terminal that may go away while it is drawn on."""

from __future__ import annotations

import os
import select
from typing import Any, TextIO, cast

from textual.drivers.linux_driver import LinuxDriver


class _Output:
    """Passes text on to a terminal; once that fails, text is dropped, so that nobody ever waits to be rid of it."""

    def __init__(self, file: TextIO) -> None:
        self.lost = False
        self._file = file

    def write(self, text: str) -> None:
        """Write, or drop."""
        left = memoryview(text.encode(self._file.encoding or "utf-8", "replace"))
        while left and not self.lost:
            try:
                left = left[os.write(self._file.fileno(), left) :]
            except BlockingIOError:
                # Whoever shares the terminal may have asked it never to wait. It is full, not gone.
                self._wait()
            except OSError:
                self.lost = True

    def _wait(self) -> None:
        ready = select.poll()
        ready.register(self._file.fileno(), select.POLLOUT)
        ready.poll()

    def flush(self) -> None:
        """Do nothing: what was written is out."""

    def fileno(self) -> int:
        """Return the descriptor of the terminal."""
        return self._file.fileno()


class Terminal(LinuxDriver):
    """Textual's own driver, which stands still for ever once its thread that writes has met an error."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._output = _Output(cast("TextIO", self._file))
        # Its type there is what Python opened; it is only ever written to, flushed, and asked for its descriptor.
        self._file = cast("Any", self._output)
        self._unreadable = False

    @property
    def lost(self) -> bool:
        """Whether the terminal went away: it cannot be written or read, or is none any more."""
        hung_up = self.input_tty and not os.isatty(self.fileno)
        return self._output.lost or self._unreadable or hung_up

    def run_input_thread(self) -> None:
        """Read keys until the terminal goes away."""
        while not self.exit_event.is_set():
            try:
                super().run_input_thread()
            except BlockingIOError:
                # Another reader of the terminal was faster.
                continue
            except OSError:
                self._unreadable = True
            return
