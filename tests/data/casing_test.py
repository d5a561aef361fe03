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

_TEXT = (
    "two dogs play in the snow at night with Anna",
    "I see NATO",
    "die Größe",
)
# Lines are made of them at random: capitals, others, letters of neither kind.
_PARTS = (
    "TWO Two two DOGS Play IN The SNOW Größe ß (Night 3D 3d %s {NAME} IBM公司 "
    "公司 ÄRGER İ ΑΣ Ǆ ǅ ª Ⅷ ⓐ 1. –   \t \u00a0 Anna ANNA NATO I A\0B Áé ÁÉ "
    "(ÁÉ) 1A “Two Nº ʻOʻK ʰA"
).split(" ")


def setUpModule():
    global _encode, _graph
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "tokenizer.model")
        pieces.learn(pieces.count_words(_TEXT * 5), path, 340)
        tokens = tokenizer.Tokenizer(path)
    _encode, _graph = tokens.encode, graph_tokenizers.of(tokens)


class CasingTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ("TWO DOGS PLAY.", "Two dogs play.", "Größen, ǆ", "GRÖSSEN, Ǆ"),
        ("“DOGS” IN  NATO", "“Dogs” in  NATO", "a  b", "A  B"),
        ("ANNA SEES: I PLAY", "Anna sees: I play", "i", "I"),
        ("Two Dogs Play", "Two dogs play", "zwei Größen", "zwei Größen"),
        ("Die Größe In NATO", "Die Größe in NATO", "ß", "ß"),
        ("TWO Dogs In (THE)", "TWO dogs in (THE)", "ß", "ß"),
        ("I See Two'S DOgs", "I see two's DOgs", "ß", "ß"),
        ("DIE GRÖßE IN NATO", "Die Größe in NATO", "in", "IN"),
        ("TWOʻ DOGS PLAY Nº 1ª", "Twoʻ dogs play Nº 1ª", "in", "IN"),
        # A name has three words at most.
        ("Anna A T O", "Anna a t o", "ß", "ß"),
    )
    def test_words_have_the_form_that_training_knows(
        self, line, sentence, text, expected
    ):
        ids, write = casing.encode(line, _encode)
        self.assertEqual(ids, _encode(sentence))
        self.assertEqual(write(text), expected)

    @parameterized.parameters(
        *("two dogs play in the snow", "Two dogs Play In The Snow", "", " "),
        *("Two Dogs Play 3d", "Two Dogs Play %s", "7 8 9 10", "I"),
        "I see Anna",
        # The vocabulary knows them so.
        *("NATO", "Anna Anna Anna Anna", "Die Größe"),
        # As many pieces, although the small letters are more frequent.
        *("Anna A T", "O T"),
        "TWO在DOGS",
        # Beside letters that have no small ones, capitals are a name.
        *("公司 TWO DOGS", "TWO DOGS 公司"),
        "TWO DOGS\0 PLAY",
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
        ids, texts = ids.to_list(), [line.replace("\0", "") for line in lines]
        draws.shuffle(texts)
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
