"""Damaged checkpoints: an error, an older checkpoint, or the same values."""

import collections
import json
import math
import pathlib
import struct
import sys
import textwrap

import numpy as np
import tensorflow as tf
from absl.testing import absltest
from absl.testing import parameterized
from tensorflow.core.protobuf import tensor_bundle_pb2

from relpos_tf import errors
from relpos_tf.models import checkpoints
from tests import commands

# In a process of its own, because TensorFlow might end it. Cases are
# (file, kind, place, value); the reader must not ask for memory either.
_READ = """
    import json, pathlib, random, resource, sys
    import numpy as np
    import tensorflow as tf
    from relpos_tf.models import checkpoints
    folder = pathlib.Path(sys.argv[1])
    good = folder / "ckpt-7"
    files = {
        name: (folder / f"ckpt-7{name}").read_bytes()
        for name in (".index", ".data-00000-of-00001")
    }
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))

    def variables():
        return {f"m/{i}": tf.Variable(tf.zeros([i, 5])) for i in range(1, 12)}

    expected = variables()
    checkpoints.restore_model(str(good), expected)
    random.seed(28)
    for name, content in files.items():
        for case in range(50):
            damaged = bytearray(content)
            place = random.randrange(len(content))
            if name == ".index" and case % 5 == 0:  # TensorFlow's blind spot
                place = len(content) - 1 - random.randrange(48)
            if case % 10 < 7:
                damaged[place] ^= random.randrange(1, 256)
            elif case % 10 < 9:
                damaged[place : place + 16] = bytes(16)
            else:
                del damaged[place:]
            for other, same in files.items():
                path = folder / f"ckpt-11{other}"
                path.write_bytes(damaged if other == name else same)
            found = variables()
            try:
                checkpoints.restore_model(str(folder / "ckpt-11"), found)
                outcome = "different"
            except ValueError as error:
                outcome = str(error).replace(str(folder), "")
            if all(
                np.array_equal(found[key], expected[key]) for key in expected
            ):
                outcome = "same"
            elif any(np.any(value) for value in found.values()):
                outcome += ", and half set"
            print(json.dumps([name, outcome]))
"""


def write_index(prefix, shapes, shard=0):
    """Writes a checkpoint's index by hand, of float32 variables.

    It is a table of LevelDB: a block of entries, a block of nothing, a block
    that says where the first one is, and a footer.
    """
    header = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
    header.version.producer = 1
    entries, offset = [(b"", header.SerializeToString())], 0
    for name, shape in sorted(shapes.items()):
        entry = tensor_bundle_pb2.BundleEntryProto(
            dtype=tf.float32.as_datatype_enum,
            shard_id=shard,
            offset=offset,
            size=4 * abs(math.prod(shape)) % 2**63,
        )
        for size in shape:
            entry.shape.dim.add(size=size)
        if offset == 0:
            path = pathlib.Path(f"{prefix}.data-00000-of-00001")
            entry.crc32c = masked_checksum(path.read_bytes())
        entries.append((name.encode(), entry.SerializeToString()))
        offset = 40
    data = block(entries)
    handle = varint(0) + varint(len(data) - 5)
    nothing = block([])
    index = block([(b"z", handle)])
    footer = (
        varint(len(data))
        + varint(len(nothing) - 5)
        + varint(len(data) + len(nothing))
        + varint(len(index) - 5)
    )
    magic = bytes.fromhex("57fb808b247547db")
    pathlib.Path(f"{prefix}.index").write_bytes(
        data + nothing + index + footer.ljust(40, b"\0") + magic
    )


def block(entries):
    """Returns a block: its entries, where they start, and a checksum."""
    content = b"".join(
        b"\0" + varint(len(key)) + varint(len(value)) + key + value
        for key, value in entries
    )
    content += struct.pack("<IIB", 0, 1, 0)  # one start, and no compression
    return content + struct.pack("<I", masked_checksum(content))


def varint(number):
    """Returns a number, seven bits a byte."""
    data = b""
    while number >= 128:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def masked_checksum(data):
    """Returns LevelDB's: a CRC-32C, turned and added to."""
    checksum = 2**32 - 1
    for byte in data:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    checksum ^= 2**32 - 1
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) % 2**32


class DamageTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.model = {
            f"m/{i}": tf.Variable(tf.random.stateless_normal([i, 5], [i, 3]))
            for i in range(1, 12)
        }
        self.manager = checkpoints.CheckpointManager(
            self.folder, {"model": self.model}
        )
        self.prefix = self.manager.save(7)

    def test_100_random_places(self):
        done = commands.run(
            [sys.executable, "-c", textwrap.dedent(_READ), str(self.folder)],
            cwd=pathlib.Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        cases = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertLen(cases, 100)
        outcomes = collections.Counter(map(tuple, cases))
        damaged = "Checkpoint /ckpt-11 is damaged or not there."
        self.assertEqual({o for _, o in outcomes}, {damaged, "same"}, outcomes)
        # The rest is padding and the graph of objects, which is not read.
        self.assertGreater(outcomes[".index", damaged], 30)
        self.assertGreater(outcomes[".data-00000-of-00001", damaged], 15)

    @parameterized.parameters(
        (0, 2**62), (0, 2**36), (2**63, 2**63), (2**62, 5), (0, 2**64 - 5)
    )
    def test_footer_that_asks_for_any_amount_of_memory(self, offset, size):
        footer = b"".join(map(varint, (1, 8, offset, size)))
        path = pathlib.Path(f"{self.prefix}.index")
        content = path.read_bytes()
        path.write_bytes(content[:-48] + footer.ljust(40, b"\0") + content[-8:])
        with self.assertRaisesRegex(ValueError, "points beyond its end"):
            checkpoints.open_checkpoint(self.prefix)
        self.assertFalse(checkpoints.is_readable(self.prefix))

    @parameterized.parameters(
        ([2**38, 5], "promises"),  # a terabyte, in 40 bytes
        ([3, 5], "promises"),
        ([2**61, 5], "impossible shape"),
        ([2**61, 2**61, 0], "impossible shape"),
        ([-1, 5], "impossible shape"),
        ([1] * 255, "impossible shape"),
    )
    def test_an_index_that_promises_what_there_is_not_ends_no_process(
        self, shape, message
    ):
        prefix = str(self.folder / "ckpt-3")
        data = np.arange(10, dtype=np.float32).tobytes()
        pathlib.Path(f"{prefix}.data-00000-of-00001").write_bytes(data)
        write_index(prefix, {"a": [2, 5]})
        reader = checkpoints.open_checkpoint(prefix)
        self.assertEqual(reader.get_tensor("a")[1, 4], 9)
        write_index(prefix, {"a": [2, 5], "b": shape})
        with self.assertRaisesRegex(ValueError, f"ckpt-3.index.*{message}"):
            checkpoints.open_checkpoint(prefix)
        self.assertFalse(checkpoints.is_readable(prefix))
        write_index(prefix, {"b": shape})
        self.assertFalse(checkpoints.is_readable(prefix))

    def test_an_index_that_names_a_data_file_beyond_the_last_is_refused(self):
        prefix = str(self.folder / "ckpt-3")
        for shard in (0, 1):
            path = pathlib.Path(f"{prefix}.data-0000{shard}-of-00001")
            path.write_bytes(bytes(40))
        write_index(prefix, {"a": [2, 5]}, shard=1)
        with self.assertRaisesRegex(ValueError, "names data file 1 of 1"):
            checkpoints.open_checkpoint(prefix)

    def test_older_data_under_a_newer_index_is_damage(self):
        self.model["m/3"].assign(-self.model["m/3"])
        self.manager.save(11)
        data = "data-00000-of-00001"
        content = (self.folder / f"ckpt-7.{data}").read_bytes()
        (self.folder / f"ckpt-11.{data}").write_bytes(content)
        with self.assertLogs("relpos_tf", "WARNING"):
            self.assertEqual(self.manager.restore(), self.prefix)

    def test_nothing_is_set_unless_all_can_be_read(self):
        data = pathlib.Path(f"{self.prefix}.data-00000-of-00001")
        size = len(data.read_bytes())
        for place in (8, size // 3):
            damaged = bytearray(data.read_bytes())
            damaged[place] ^= 1
            data.write_bytes(damaged)
            for variable in self.model.values():
                variable.assign(tf.zeros_like(variable))
            with self.assertRaisesRegex(errors.UserError, "damaged"):
                checkpoints.restore_model(self.prefix, self.model)
            for variable in self.model.values():
                self.assertFalse(variable.numpy().any())
            damaged[place] ^= 1
            data.write_bytes(damaged)


if __name__ == "__main__":
    absltest.main()
