"""Recordings: what every worker said, second by second, in one file that survives a crash.

    from pdops.sources.recording import RecordingWriter, open_recording

The file format is described in `pdops.sources.recording.format`.
"""

from pdops.sources.recording.reader import Recording, open_recording
from pdops.sources.recording.writer import RecordingWriter

__all__ = ["Recording", "RecordingWriter", "open_recording"]
