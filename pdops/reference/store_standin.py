"""Take every connection and close it at once: `python store_standin.py HOST PORT`.

Nothing of pdops is imported here, so that it starts in an instant.
"""

from __future__ import annotations

import socket
import sys


def main(host: str, port: int) -> None:
    """Do so until somebody ends it."""
    with socket.create_server((host, port), backlog=128) as server:
        while True:
            server.accept()[0].close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
