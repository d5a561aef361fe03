"""What is written of a line's translations."""

import json

import numpy as np
from absl.testing import absltest

from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import output_lines


class TranslationLineTest(absltest.TestCase):
    def line(self, text):
        settings = decode_hparam.DecodeHParams.parse(text)
        return output_lines.translation_line(
            settings, ["a\tb", "c"], [-1.0, -2.34567]
        )

    def test_best_alone_or_all_between_tabs(self):
        self.assertEqual(self.line(""), "a\tb")
        self.assertEqual(self.line("return_beams=true"), "a b\tc")
        self.assertEqual(
            self.line("return_beams=true,write_beam_scores=true"),
            "a b\t-1.0000\tc\t-2.3457",
        )


class AttentionLineTest(absltest.TestCase):
    def test_mean_over_layers_and_heads(self):
        weights = np.zeros([2, 2, 1, 3], np.float32)
        weights[..., 0] = 0.25
        weights[0, :, :, 1] = 0.75
        weights[1, 0, :, 2] = 0.75
        weights[1, 1, :, 1] = 0.75
        look = engines.Attention(["ä", "b", "</s>"], ["x"], weights)
        line = output_lines.attention_line(look)
        self.assertIn("ä", line)
        self.assertEqual(
            json.loads(line),
            {
                "source": ["ä", "b", "</s>"],
                "target": ["x"],
                "alignment": [1],
                "attention": [[0.25, 0.5625, 0.1875]],
            },
        )

    def test_blank_line_has_none(self):
        found = json.loads(output_lines.attention_line(None))
        self.assertEqual(found["attention"], [])


if __name__ == "__main__":
    absltest.main()
