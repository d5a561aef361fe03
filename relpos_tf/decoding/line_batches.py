"""Which lines are translated together."""

from collections.abc import Iterator

# Most lines of a batch, unless told otherwise.
BATCH_LINES = 128
# Most translations drawn at once: as many as a search with 4 beams has.
BATCH_DRAWN = 4 * BATCH_LINES
# Most padded source ids of a batch, times the beams.
BATCH_IDS = 16384
# A place in a translation counts as much as this share of an id of its source:
# with the usual `extra_length`, the source is what counts.
_PLACES = 8
# Longer lines are named before they are translated.
LONG_LINE = 2000
# Line numbers that a warning names.
_NAMED_LINES = 8


def cost(size: int, places: int, beam_size: int) -> int:
    """Returns how many ids a line counts in `make_batches`.

    Memory grows with the ids of the source and, as `places` of each hypothesis
    have keys and values, with those of the translation.

    Args:
        size: int. Ids of the source.
        places: int. How many ids its translation may have.
        beam_size: int.
    """
    return beam_size * max(size, -(-places // _PLACES))


def make_batches(
    sizes: list[int],
    batch_size: int = BATCH_LINES,
    batch_ids: int = BATCH_IDS,
) -> Iterator[list[int]]:
    """Yields the places of items that go together, the longest first.

    Args:
        sizes: How many ids each item is, beams included.
        batch_size: int. Most items of a batch.
        batch_ids: int. Most ids of a batch, padding included.

    Yields:
        Lists of places in `sizes`. Each place comes once.
    """
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    while order:
        # The first is the longest: the others are padded to its size.
        number = min(batch_size, max(1, batch_ids // sizes[order[0]]))
        yield order[:number]
        order = order[number:]


def named(numbers: list[int]) -> str:
    """Returns the numbers of lines, as in `3 lines (2, 5, 7)`."""
    numbers = sorted(numbers)
    named = ", ".join(str(number) for number in numbers[:_NAMED_LINES])
    more = ", ..." if len(numbers) > _NAMED_LINES else ""
    plural = "lines" if len(numbers) > 1 else "line"
    return f"{len(numbers)} {plural} ({named}{more})"
