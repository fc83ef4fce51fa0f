"""Log lines of workers as a source: files, journald, Kubernetes and Loki."""

from pdops.sources.logs.batch import MAX_LINE_BYTES, MAX_LINES, MAX_READ_BYTES, LogPattern
from pdops.sources.logs.files import LogTail
from pdops.sources.logs.reader import LogReader

__all__ = ["MAX_LINES", "MAX_LINE_BYTES", "MAX_READ_BYTES", "LogPattern", "LogReader", "LogTail"]
