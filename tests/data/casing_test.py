"""Lines in capitals and in title case are translated in lower case."""

import collections
import pathlib
import random
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from relpos_tf.data import casing
from relpos_tf.data import graph_casing
from relpos_tf.data import graph_tokenizers
from relpos_tf.data import pieces
from relpos_tf.data import tokenizer

_TEXT = ("two dogs play in the snow at night with Anna", "NATO", "Zwei Größen")
# Cut into lines at random: capitals, small, and letters that are neither.
_PARTS = (
    *("TWO", "Two", "two", "DOGS", "Play", "IN", "The", "SNOW", "Größe", "ß"),
    *(
        "(Night",
        "3D",
        "3d",
        "%s",
        "{NAME}",
        "IBM公司",
        "公司",
        "ÄRGER",
        "İ",
        "ΑΣ",
    ),
    *(
        "Ǆ",
        "ǅ",
        "ª",
        "Ⅷ",
        "ⓐ",
        "1.",
        "–",
        "",
        "",
        "\t",
        "\u00a0",
        "Anna",
        "NATO",
    ),
)


def setUpModule():
    global _encode, _graph
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "tokenizer.model")
        pieces.learn(pieces.count_words(_TEXT * 5), path, 340)
        tokens = tokenizer.Tokenizer(path)
    _encode, _graph = tokens.encode, graph_tokenizers.of(tokens)


class CasingTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        (
            "TWO DOGS PLAY.",
            "Two dogs play.",
            "zwei Größen, ǆ",
            "ZWEI GRÖSSEN, Ǆ",
        ),
        ("“DOGS”", "“dogs”", "a  b", "A  B"),
        ("Two Dogs Play In", "Two dogs play in", "zwei Größen", "zwei Größen"),
        ("“Two” Dogs 2 “Night”", "“two” dogs 2 “night”", "ß", "ß"),
    )
    def test_lines_are_read_as_sentences(self, line, sentence, text, expected):
        ids, write = casing.encode(line, _encode)
        self.assertEqual(ids, _encode(sentence))
        self.assertEqual(write(text), expected)

    @parameterized.parameters(
        *("two dogs play in the snow", "Two dogs Play In The Snow", ""),
        *("Two Dogs Play", "Two Dogs Play 3d", "Two Dogs Play %s", "7 8 9 10"),
        # The vocabulary knows them so.
        *("NATO", "Anna Anna Anna Anna"),
        # Beside letters that have no small ones, capitals are a name.
        *("IBM公司", "TWO DOGS 公司", "二 TWO DOGS PLAY IN"),
    )
    def test_other_lines_stay_as_they_are(self, line):
        self.assertEqual(casing.encode(line, _encode), (_encode(line), str))

    def test_a_text_of_capitals_stays_for_a_vocabulary_of_capitals(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tokenizer.model")
            words = pieces.count_words([_TEXT[0].upper()] * 5)
            pieces.learn(words, path, 330)
            encode = tokenizer.Tokenizer(path).encode
        ids, write = casing.encode("TWO DOGS PLAY.", encode)
        self.assertEqual((ids, write), (encode("TWO DOGS PLAY."), str))

    def test_graphs_agree_with_python(self):
        draws = random.Random(7)
        lines = ["", " "] + [
            " ".join(draws.choices(_PARTS, k=draws.randint(1, 6))).strip()
            for _ in range(3000)
        ]
        ids, write = graph_casing.of(tf.constant(lines), _graph.encode)
        ids, texts = ids.to_list(), draws.sample(lines, k=len(lines))
        written = write(tf.constant(texts)[:, tf.newaxis]).numpy()[:, 0]
        counts = collections.Counter()
        for i, line in enumerate(lines):
            expected, own = casing.encode(line, _encode)
            counts[own, expected != _encode(line)] += 1
            self.assertEqual(ids[i], expected, line)
            self.assertEqual(written[i].decode(), own(texts[i]), line)
        self.assertLen(counts, 3)
        self.assertGreater(min(counts.values()), 100)


if __name__ == "__main__":
    tf.test.main()
