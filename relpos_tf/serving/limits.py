"""What one server takes on, and how it refuses the rest."""

import dataclasses
import logging
import traceback

from relpos_tf import errors
from relpos_tf import fields

_log = logging.getLogger("relpos_tf")
STOPPING = "The server stops."


@dataclasses.dataclass(frozen=True)
class Limits(fields.Record):
    """The limits of a server. Each is a flag of `relpos-serve`.

    Raises:
        UserError: a value is outside what its field can hold.
    """

    max_body_bytes: int = fields.number(1_000_000, least=1)
    max_lines: int = fields.number(512, least=1)  # of one request
    max_line_length: int = fields.number(2000, least=1)  # characters
    max_line_ids: int = fields.number(0)  # 0: by the model, see `line_ids`
    max_beam_size: int = fields.number(16, least=1)  # also most translations
    max_extra_length: int = fields.number(500)  # ids beyond the source's
    max_batch_lines: int = fields.number(64, least=1)
    # How long a line waits for others before an idle model translates it.
    batch_wait_ms: float = fields.number(3.0, most=1000)
    # Lines that wait for one model; further ones are refused.
    max_queue_lines: int = fields.number(4096, least=1)
    # Of one answer. 4 million are about 30 MB of JSON.
    max_attention_weights: int = fields.number(4_000_000)
    timeout_s: float = fields.number(60.0, above=0, most=3600)  # of a request
    # Of a connection between two requests: more than a proxy's 60 s.
    keep_alive_s: float = fields.number(75.0, above=0, most=3600)

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
