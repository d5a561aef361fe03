"""Tests of JSON objects with their checksum."""

import hashlib
import json

from absl.testing import absltest
from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.utils import checked_json

VALUES = {
    "name": "größe\u2028",
    "alpha": 0.6,
    "deep": {"b": [1, None], "a": -0.0},
}


class CheckedJsonTest(parameterized.TestCase):
    def test_values_come_back_in_their_order(self):
        found = checked_json.loads(checked_json.dumps(VALUES))
        self.assertEqual(found, VALUES)
        self.assertEqual(list(found), list(VALUES))
        self.assertEqual(checked_json.loads(checked_json.dumps({})), {})

    def test_the_checksum_is_the_sha256_of_sorted_fields(self):
        text = checked_json.dumps({"b": (1, 2), "a": "x"})
        expected = hashlib.sha256(b'{"a":"x","b":[1,2]}').hexdigest()
        self.assertEqual(
            json.loads(text), {"b": [1, 2], "a": "x", "sha256": expected}
        )
        self.assertEqual(checked_json.loads(text), {"b": [1, 2], "a": "x"})

    def test_layout_and_order_do_not_matter(self):
        values = json.loads(checked_json.dumps(VALUES))
        text = json.dumps(dict(reversed(values.items())))
        self.assertEqual(checked_json.loads(text), VALUES)

    def test_no_flipped_bit_changes_the_values(self):
        whole = checked_json.dumps(VALUES).encode()
        refused = 0
        for place in range(8 * len(whole)):
            content = bytearray(whole)
            content[place // 8] ^= 1 << place % 8
            try:
                found = checked_json.loads(bytes(content))
            except errors.UserError:
                refused += 1
            else:
                # Blanks have changed, or the name of the checksum.
                self.assertEqual({name: found[name] for name in VALUES}, VALUES)
        self.assertGreater(refused, 4 * len(whole))

    def test_every_cut_is_refused(self):
        whole = checked_json.dumps(VALUES).encode().rstrip()
        for size in range(len(whole)):
            with self.assertRaisesRegex(errors.UserError, "expected JSON"):
                checked_json.loads(whole[:size])

    def test_an_object_without_a_checksum_is_read(self):
        self.assertEqual(checked_json.loads(json.dumps(VALUES)), VALUES)

    def test_what_is_no_object_is_refused(self):
        for content in ("[1]", b"3", '"text"', "[" * 100_000, b"\xff\xfe"):
            with self.assertRaisesRegex(errors.UserError, "expected"):
                checked_json.loads(content)

    @parameterized.parameters(
        (7, int),
        (7, float),
        (7.5, float),
        (None, int | None),
        (3, int | None),
        ("x", str),
        (True, bool),
        ({}, dict),
        ({"a": 1}, dict[str, int]),
        (["a"], list[str]),
        ([], list[str]),
        ({"a": [2]}, dict[str, list[int]]),
    )
    def test_fields_of_the_types_expected_are_read(self, value, kind):
        text = json.dumps({"field": value})
        found = checked_json.loads(text, {"field": kind, "other": str})
        self.assertEqual(found, {"field": value})

    @parameterized.parameters(
        (True, int, "int"),
        (7.0, int, "int"),
        ("7", float, "float"),
        (False, float, "float"),
        (None, str, "str"),
        (3, str, "str"),
        ([], dict, "dict"),
        ({"a": "1"}, dict[str, int], r"dict\[str, int\]"),
        ("ab", list[str], r"list\[str\]"),
        ([1], list[str], r"list\[str\]"),
        (1.5, int | None, r"int \| None"),
        ({"a": {}}, dict[str, list[int]], r"dict\[str, list\[int\]\]"),
    )
    def test_fields_of_other_types_are_named(self, value, kind, words):
        text = json.dumps({"field": value})
        with self.assertRaisesRegex(
            errors.UserError, f"its field `field` must be of type {words}. Rec"
        ):
            checked_json.loads(text, {"field": kind})

    def test_missing_fields_are_named(self):
        text = json.dumps({"b": 1})
        self.assertEqual(checked_json.loads(text, {}, ["b"]), {"b": 1})
        with self.assertRaisesRegex(
            errors.UserError, "the fields a, c. Received: b"
        ):
            checked_json.loads(text, {}, ["c", "b", "a"])


if __name__ == "__main__":
    absltest.main()
