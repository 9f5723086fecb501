"""How many windows a token line has, and which of its targets they serve.

A window reads `read_length` tokens from its start and serves the targets at `start + 1` to `start + read_length - 1`:
every token it reads but the first, which it has nothing to predict from. So a line of N tokens has N - 1 targets.

- `targets="next"` reads `window + 1` tokens and serves `window` targets; the stride `window` serves each once.
- `targets="inside"` reads `window` tokens and serves `window - 1` targets; the stride `window - 1` serves each once.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Targets", "WindowGrid", "targets_per_window"]

Targets = Literal["next", "inside"]


def targets_per_window(window: int, targets: Targets) -> int:
    """Return how many targets a window of `window` inputs serves; it reads one token more than that."""
    return window if targets == "next" else window - 1


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """Windows at the starts 0, stride, 2 * stride, ... that lie wholly in a line of tokens.

    For every grid with a window: `served_targets + lost_targets + tail_tokens == token_count - 1`.
    """

    token_count: int
    """Tokens of the line; at least `read_length`."""
    read_length: int
    """Tokens that a window reads."""
    stride: int
    """Tokens from one start to the next, >= 1."""

    @property
    def windows(self) -> int:
        """Windows that fit: `1 + (token_count - read_length) // stride`."""
        return 1 + (self.token_count - self.read_length) // self.stride

    @property
    def served_targets(self) -> int:
        """Different targets that the windows serve."""
        return self.token_count - 1 - self.lost_targets - self.tail_tokens

    @property
    def lost_targets(self) -> int:
        """Targets between two windows that neither serves: one a window where the stride is the read length."""
        return (self.windows - 1) * max(0, self.stride - (self.read_length - 1))

    @property
    def repeated_targets(self) -> int:
        """Targets served again by a later window, once for each time."""
        return self.windows * (self.read_length - 1) - self.served_targets

    @property
    def tail_tokens(self) -> int:
        """Tokens after the last window. Each is a target that no window serves."""
        return self.token_count - ((self.windows - 1) * self.stride + self.read_length)
