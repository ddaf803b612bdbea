"""What a machine lacks for something, and what gets it there."""

from __future__ import annotations

from typing import NamedTuple


class Lack(NamedTuple):
    """One thing that is missing, and the command (or the words) that would help; "" when nothing does."""

    what: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.fix})" if self.fix else self.what
