"""The requests with which TensorFlow Serving warms up a SavedModel.

A server runs them before it answers other requests. They are in a TFRecord
inside the SavedModel, each a message `tensorflow.serving.PredictionLog`. This
module encodes the messages field by field, because the package that defines
them, tensorflow-serving-api, requires a certain version of TensorFlow.
"""

import itertools
import pathlib
from collections.abc import Sequence

import tensorflow as tf

from relpos_tf import errors
from relpos_tf.data import tokenizer as tokenizer_lib

FILE = "assets.extra/tf_serving_warmup_requests"
# A label; the server sends the request to the model that it is loading.
MODEL_NAME = "translator"
SIGNATURE = "serving_default"

_MOST_RECORDS = 1000  # The server refuses to load a model with more.
_SIZES = (8, 24, 64)  # pieces of a short, a medium and a long line


def sample_lines(tokenizer: tokenizer_lib.AnyTokenizer) -> list[str]:
    """Makes a short, a medium and a long line of pieces of a vocabulary.

    Vocabularies list frequent pieces first, so the lines have the alphabet of
    the training text.
    """
    pieces = tokenizer.pieces()
    # Blanks are "\u2581" in SentencePiece and "_" in tensor2tensor.
    letters = [i for i, p in enumerate(pieces) if p.strip("\u2581_").isalpha()]
    words = [i for i in letters if {"\u2581", "_"}.intersection(pieces[i])]
    ids = itertools.cycle(words or letters or range(2, len(pieces)))
    return [
        tokenizer.decode(list(itertools.islice(ids, size))).strip()
        for size in _SIZES
    ]


def check(lines: Sequence[str]) -> None:
    """Refuses more lines than a server accepts."""
    if len(lines) >= _MOST_RECORDS:  # One request has all lines.
        raise errors.UserError(
            f"Expected at most {_MOST_RECORDS - 1} lines to warm up with. "
            f"Received: {len(lines)}."
        )


def write(export_dir: str | pathlib.Path, lines: Sequence[str]) -> None:
    """Writes a request for each line and one for all into a SavedModel.

    Args:
        export_dir: The SavedModel.
        lines: Texts to translate. For an empty list nothing is written.

    Raises:
        UserError: there are more than a server accepts.
    """
    check(lines)
    requests = [[line] for line in lines]
    if len(lines) > 1:
        requests.append(list(lines))
    if requests:
        path = pathlib.Path(export_dir, FILE)
        path.parent.mkdir(exist_ok=True)
        with tf.io.TFRecordWriter(str(path)) as writer:
            for request in requests:
                writer.write(prediction_log(request))


def prediction_log(lines: Sequence[str]) -> bytes:
    """Returns a request to translate lines as a serialized PredictionLog.

    The field numbers are in prediction_log.proto, predict.proto and
    model.proto of TensorFlow Serving.
    """
    strings = [line.encode("utf-8", errors="replace") for line in lines]
    tensor = tf.make_tensor_proto(strings, tf.string, [len(strings)])
    # ModelSpec: name = 1, signature_name = 3.
    spec = _field(1, MODEL_NAME.encode()) + _field(3, SIGNATURE.encode())
    # An entry of a map: key = 1, value = 2.
    entry = _field(1, b"inputs") + _field(2, tensor.SerializeToString())
    # PredictRequest: model_spec = 1, inputs = 2.
    request = _field(1, spec) + _field(2, entry)
    # PredictionLog: predict_log = 6; PredictLog: request = 1.
    return _field(6, _field(1, request))


def _field(number: int, content: bytes) -> bytes:
    """Encodes a field of a message: a string or another message."""
    # Wire type 2: the length, then the content.
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encodes a number in groups of 7 bits, lowest first.

    All bytes except the last have their highest bit set.
    """
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
