"""What one server takes on, and how it refuses the rest."""

import dataclasses

from relpos_tf import errors
from relpos_tf import fields


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a server. Each is a flag of `relpos-serve`.

    Raises:
        UserError: a value is outside what its field can hold.
    """

    max_body_bytes: int = fields.number(1_000_000, least=1)
    max_lines: int = fields.number(512, least=1)  # of one request
    max_line_length: int = fields.number(2000, least=1)  # characters
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

    def __post_init__(self):
        fields.check(self)


class RefusedError(errors.UserError):
    """A request that is refused with a status other than 422.

    Every other `UserError` is answered with 422.

    Attributes:
        status: int. The status code.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def stopping() -> RefusedError:
    """Returns the refusal of a server that stops."""
    return RefusedError(503, "The server stops.")
