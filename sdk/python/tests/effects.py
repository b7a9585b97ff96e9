"""Effects of agents, which tests count."""

from __future__ import annotations


class Effects:
    """Counts the effects of agents."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def do(self, what: str) -> str:
        self.done.append(what)
        return f"{what}!"
