"""Where in the model the next round merges, and how much of it."""

from enum import IntEnum

from safesync.outer import Fragment, split

PARTS = 8


class Share(IntEnum):
    """What the next round merges; rank 0 decides, and the number is what it broadcasts."""

    NONE = 0
    PART = 1
    WHOLE = 2


def part_size(fragment_parameters: int) -> int:
    """Return the parameters of one part of a full fragment."""
    return -(-fragment_parameters // PARTS)


class Cursor:
    """Walks the fragments of a model in order and round again, each as a whole or in parts.

    A part (``part_size``) is an eighth of a full fragment; the parts of one fragment lie on a
    fixed grid. A fragment that was begun in parts is finished in parts.
    """

    def __init__(self, parameters: int, fragment_parameters: int) -> None:
        self._fragments = split(parameters, fragment_parameters)
        self._part = part_size(fragment_parameters)
        self._index = 0
        self._start = 0

    @property
    def at_boundary(self) -> bool:
        """Return whether the next fragment can be taken as a whole."""
        return self._start == self._fragments[self._index].start

    def take(self, share: Share) -> Fragment:
        """Return what the next round merges and move behind it."""
        fragment = self._fragments[self._index]
        stop = fragment.stop
        if share is Share.PART:
            stop = min(self._start + self._part, stop)
        taken = Fragment(self._start, stop)
        if stop == fragment.stop:
            self._index = (self._index + 1) % len(self._fragments)
        self._start = self._fragments[self._index].start if stop == fragment.stop else stop
        return taken
