"""`python -m delta_sharing_client`: the command line `delta-sharing`."""

from __future__ import annotations

from delta_sharing_client.cli import main

if __name__ == "__main__":
    main()
