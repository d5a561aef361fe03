"""What one server takes on, and how it refuses the rest."""

import dataclasses
import logging
import traceback

from relpos_tf import errors
from relpos_tf import fields
from relpos_tf.fields import number

_log = logging.getLogger("relpos_tf")
STOPPING = "The server stops."


@dataclasses.dataclass(frozen=True)
class Limits(fields.Record):
    """The limits of a server. Each is a flag of `relpos-serve`.

    Raises:
        UserError: a value is outside what its field can hold.
    """

    max_batch_lines: int = number(  # as engines.BATCH_LINES
        64, 1, 128, help="Lines of a batch."
    )
    batch_wait_ms: float = number(
        3.0,
        most=1000,
        help="Milliseconds that a line waits for others while the model is "
        "idle.",
    )
    max_queue_lines: int = number(
        4096,
        1,
        help="Lines that may wait for a model; further requests get status "
        "503.",
    )
    keep_alive_s: float = number(  # more than a proxy's 60 s
        75.0, 0.001, 3600, help="Seconds that an idle connection stays open."
    )
    timeout_s: float = number(
        60.0, 0.001, 3600, help="Seconds after which a request gets status 504."
    )
    max_body_bytes: int = number(
        1_000_000, 1, help="Bytes of a request; larger ones get status 413."
    )
    max_lines: int = number(
        512, 1, help="Lines of a request; more get status 422."
    )
    max_line_length: int = number(
        2000, 1, help="Characters of a line; more get status 422."
    )
    max_line_ids: int = number(  # see `line_ids`
        0,
        help="Ids of a line; 0: twice the longest source of training, from 256 "
        "to 1000. More get status 422.",
    )
    max_beam_size: int = number(
        16,
        1,
        help="Beams, or translations of a line, that a request may ask for.",
    )
    max_extra_length: int = number(
        500, help="The extra_length that a request may ask for."
    )
    max_attention_weights: int = number(  # 4 million: some 30 MB of JSON
        4_000_000,
        help="Attention weights of an answer; one with more gets status 422.",
    )

    def line_ids(self, longest: int) -> int:
        """Returns the most ids of a line, which decide its time and memory.

        By default twice those of the longest source in training, from 256 to
        1,000: a model has learnt nothing of longer ones.

        Args:
            longest: int. `engines.Engine.longest_source`.
        """
        return self.max_line_ids or min(1000, max(256, 2 * longest or 1000))


class RefusedError(errors.UserError):
    """A request that is refused with a status other than 422.

    Every other `UserError` is answered with 422.

    Attributes:
        status: int. The status code.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def failed(error: Exception) -> RefusedError:
    """Logs a fault and returns what its request gets.

    The message may quote a request, so it stays on one line.
    """
    frames = "".join(traceback.format_tb(error.__traceback__))
    _log.error("A request failed.\n%s%s", frames, ascii(error))
    return RefusedError(500, "The server failed; its log says why.")
