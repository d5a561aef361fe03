"""Tests of JSON objects with their checksum."""

import hashlib
import json

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf.utils import checked_json

VALUES = {
    "name": "größe\u2028",
    "alpha": 0.6,
    "deep": {"b": [1, None], "a": -0.0},
}


class CheckedJsonTest(parameterized.TestCase):
    def test_values_come_back_in_their_order_from_any_layout(self):
        found = checked_json.loads(checked_json.dumps(VALUES))
        self.assertEqual(found, VALUES)
        self.assertEqual(list(found), list(VALUES))
        values = json.loads(checked_json.dumps(VALUES))
        text = json.dumps(dict(reversed(values.items())))
        self.assertEqual(checked_json.loads(text), VALUES)
        # Without a checksum:
        self.assertEqual(checked_json.loads(json.dumps(VALUES)), VALUES)

    def test_the_checksum_is_the_sha256_of_sorted_fields(self):
        text = checked_json.dumps({"b": (1, 2), "a": "x"})
        expected = hashlib.sha256(b'{"a":"x","b":[1,2]}').hexdigest()
        self.assertEqual(
            json.loads(text), {"b": [1, 2], "a": "x", "sha256": expected}
        )

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

    def test_what_is_no_object_is_refused(self):
        whole = checked_json.dumps(VALUES).rstrip()
        cut = [whole[:size] for size in range(len(whole))]
        for content in ("[1]", b"3", '"text"', "[" * 100_000, b"\xff", *cut):
            with self.assertRaisesRegex(errors.UserError, "expected"):
                checked_json.loads(content)

    @parameterized.parameters(
        (7, int, True),
        (7, float, True),
        (None, int | None, True),
        (True, bool, True),
        ({"a": 1}, dict[str, int], True),
        (["a"], list[str], True),
        ({"a": [2]}, dict[str, list[int]], True),
        (True, int, False),
        (7.0, int, False),
        (False, float, False),
        (3, str, False),
        ({"a": "1"}, dict[str, int], False),
        ("ab", list[str], False),
        (1.5, int | None, False),
        ({"a": {}}, dict[str, list[int]], False),
    )
    def test_types_of_fields_are_checked(self, value, kind, is_right):
        content = json.dumps({"field": value})
        if is_right:
            checked_json.loads(content, {"field": kind})
            return
        with self.assertRaisesRegex(errors.UserError, "`field` must be of ty"):
            checked_json.loads(content, {"field": kind})

    def test_missing_fields_are_named(self):
        with self.assertRaisesRegex(errors.UserError, "a, c. Received: b"):
            checked_json.loads('{"b": 1}', dict.fromkeys("cba", int))
