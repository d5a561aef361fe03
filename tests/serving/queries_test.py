"""What a request may contain."""

import json

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.serving import limits as limits_lib
from relpos_tf.serving import queries

LIMITS = limits_lib.Limits(
    max_lines=3, max_line_length=11, max_beam_size=5, max_extra_length=17
)


def parse(**values):
    query = queries.parse(queries.read(json.dumps(values).encode()))
    queries.check_sizes(query, LIMITS)
    return query


class QueriesTest(parameterized.TestCase):
    def test_fields_become_a_query(self):
        options = {"beam_size": 5, "alpha": 1, "no_repeat_ngram_size": 2}
        more = {"model": "m", "n_best": 3, "attention": True}
        how = decode_hparam.DecodeHParams(**options)
        expected = queries.Query(("a", "b"), how, **more)
        self.assertEqual(parse(lines=["a", "b"], **more, **options), expected)

    def test_every_line_is_text(self):
        how = queries.parse({"lines": []}).decode_hparams
        with self.assertRaisesRegex(errors.UserError, "lines.*Received.*7"):
            queries.Query(lines=("a", 7, "b"), decode_hparams=how)

    def test_what_is_null_is_left_out(self):
        query = parse(lines=["a"], model=None, attention=None, alpha=None)
        self.assertEqual(query, parse(lines=["a"]))

    @parameterized.parameters(
        (b"",),
        (b"lines=a",),
        (b'{"lines": ["\xff"]}',),
        (b"[" * 100_000,),
        ('{"lines": []}'.encode("utf-16"),),
        (b'["a"]',),
        (b'{"lines": ["a\\ud83d"]}',),  # half a character
        (b'{"\\udcff": 1}',),
    )
    def test_what_is_no_json_object_is_400(self, body):
        with self.assertRaises(limits_lib.RefusedError) as caught:
            queries.read(body)
        self.assertEqual(caught.exception.status, 400)

    @parameterized.parameters((0, 1000), (9, 256), (200, 400), (999, 1000))
    def test_a_line_has_at_most_twice_the_ids_of_training(self, seen, most):
        self.assertEqual(LIMITS.line_ids(seen), most)
        set_by_hand = limits_lib.Limits(max_line_ids=7)
        self.assertEqual(set_by_hand.line_ids(seen), 7)

    def test_a_fault_that_quotes_a_request_is_one_printable_line(self):
        with self.assertLogs("relpos_tf", "ERROR") as logs:
            limits_lib.failed(KeyError("\r\nnew line \x1b[31m \u2028\ud800"))
        (line,) = logs.output[0].split("\n")[1:]
        self.assertTrue(line.isprintable())

    @parameterized.parameters(
        ({}, 'Expected "lines"'),
        ({"lines": "abc"}, 'Expected "lines"'),
        ({"lines": ["a", None]}, 'Expected "lines"'),
        ({"lines": ["a"] * 4}, "at most 3 for the number of lines"),
        ({"lines": ["a", "b" * 12]}, "at most 11 for the length of a line"),
        ({"lines": ["a"], "line": "b"}, "Did you mean lines?"),
        ({"lines": ["a"], "batch_size": 2}, "Unknown fields"),
        ({"lines": ["a"], "n_best": 6}, "at most 5 for `n_best`"),
        ({"lines": ["a"], "beam_size": 6}, "at most 5 for `beam_size`"),
        ({"lines": ["a"], "beam_size": 0}, "`beam_size` must be at least 1"),
        ({"lines": ["a"], "beam_size": "2"}, "`beam_size` must be"),
        ({"lines": ["a"], "extra_length": 18}, "at most 17 for `extra_length`"),
        ({"lines": ["a"], "alpha": float("nan")}, "`alpha` must be a finite"),
        ({"lines": ["a"], "sampling_method": "best"}, "argmax, random"),
        ({"lines": ["a"], "random_seed": 2}, "`random_seed` has no effect"),
        ({"lines": ["a"], "attention": "all"}, "`attention` must be of type"),
    )
    def test_what_a_field_cannot_hold_is_named(self, values, message):
        with self.assertRaises(errors.UserError) as caught:
            parse(**values)
        self.assertIn(message, str(caught.exception))
