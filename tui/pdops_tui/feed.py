"""Where the screen gets its data: a live source or a recording."""

from pdops_tui.live import LiveFeed
from pdops_tui.player import Frames, Recorded
from pdops_tui.published import Judge
from pdops_tui.replay import ReplayFeed
from pdops_tui.snapshot import Command, Feed, Position, Snapshot

__all__ = ["Command", "Feed", "Frames", "Judge", "LiveFeed", "Position", "Recorded", "ReplayFeed", "Snapshot"]
