"""TFRecords: read and written as others do, and nothing that is damaged is taken for data."""

from __future__ import annotations

import gzip
import itertools
import random
import struct
import sys
import threading
import time
import tracemalloc
import zlib
from pathlib import Path

import deflate
import google_crc32c
import numpy as np
import pytest
import tfrecord as theirs
from google.protobuf.message import DecodeError
from tfrecord import example_pb2

from models.data import crc32c, tfrecord
from models.data.tf_example import serialise
from models.data.tfrecord import TfRecordReader, fastest, framed, write
from models.errors import DataCorrupt, DataMissing
from tests.data.sets import open_below

X, Y = bytes(range(64)), [0.25, -1.0, 1.0, 0.0]
READERS = [TfRecordReader("deflate", "google-crc32c"), TfRecordReader("zlib", "numpy")]


@pytest.fixture(params=READERS, ids=lambda reader: reader.gunzip)
def reader(request) -> TfRecordReader:
    return request.param


def read(path: Path, reader: TfRecordReader = READERS[0], size: int = len(X)) -> tuple[bytes, list[float]]:
    x, y = np.zeros(size, np.uint8), np.zeros(4, np.float32)
    reader.read(str(path), x, y)
    return x.tobytes(), y.tolist()


def saved(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def refused(path: Path, data: bytes, reader: TfRecordReader = READERS[0], size: int = len(X)) -> str:
    """What is said of a file that holds this."""
    with pytest.raises(DataCorrupt) as error:
        read(saved(path, data), reader, size)
    text = str(error.value)
    assert text.startswith(f"{path}, record 1: ")
    assert text.endswith("; copy the file again, or skip such files with --skip-corrupt")
    return text


def compressed(data: bytes, level: int = 6) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


RECORD = framed(serialise({"x": X, "y": Y}))

# --- checksums -------------------------------------------------------------------------------------------------------

VECTORS = {  # RFC 3720, B.4
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}


@pytest.mark.parametrize("name", crc32c.IMPLEMENTATIONS)
def test_checksums_are_those_of_the_standard(name):
    extend = crc32c.IMPLEMENTATIONS[name]().extend
    assert {data: extend(0, data) for data in VECTORS} == VECTORS


@pytest.mark.slow
def test_both_checksums_agree_on_any_length_and_in_pieces():
    rng = random.Random(0)
    lengths = [*range(300), 4095, 16384, 16385, 32771, *(rng.randrange(1 << 18) for _ in range(40))]
    for length in lengths:
        data, before = rng.randbytes(length), rng.randrange(1 << 32)
        expected = google_crc32c.extend(before, data)
        assert crc32c.by_numpy(before, data) == expected, length
        assert crc32c.google().extend(before, data) == expected, length
        cut = rng.randrange(length + 1)
        assert crc32c.by_numpy(crc32c.by_numpy(before, data[:cut]), data[cut:]) == expected, (length, cut)


def test_an_older_or_a_static_google_crc32c_will_do(monkeypatch):
    crc32c.google.cache_clear()
    monkeypatch.setattr(google_crc32c._crc32c, "__file__", "/nowhere.so")
    try:
        checksum = crc32c.google()
    finally:
        crc32c.google.cache_clear()
    assert checksum.extend(0, memoryview(bytearray(b"123456789"))) == 0xE3069283
    assert checksum.piece == 1 << 20, "for less it would keep Python's lock"


# --- as others do ----------------------------------------------------------------------------------------------------


def test_what_we_write_others_read(tmp_path):
    write(str(tmp_path / "plain"), X, Y, gzip=False)
    write(str(tmp_path / "gzip"), X, Y)
    for name, kind in (("plain", None), ("gzip", "gzip")):
        file, kinds = str(tmp_path / name), {"x": "byte", "y": "float"}
        (record,) = theirs.tfrecord_loader(file, None, kinds, compression_type=kind)
        assert (record["x"], record["y"].tolist()) == (X, Y)
    assert gzip.decompress((tmp_path / "gzip").read_bytes()) == (tmp_path / "plain").read_bytes()


def test_what_others_write_we_read(tmp_path, reader):
    """Also their checksums, which are those of a third implementation."""
    writer = theirs.TFRecordWriter(str(tmp_path / "plain"))
    writer.write({"y": (Y, "float"), "x": (X, "byte"), "more": ([1, 2, 3], "int")})
    writer.close()
    assert read(tmp_path / "plain", reader) == (X, Y)
    assert read(saved(tmp_path / "gzip", gzip.compress((tmp_path / "plain").read_bytes(), 9)), reader) == (X, Y)


def field(number: int, wire: int, content: bytes) -> bytes:
    """A field of a protocol buffer, with two bytes of length where one would do: that is allowed, too."""
    size = bytes([len(content) % 128 + 128, len(content) // 128]) if wire == 2 else b""
    return bytes([number << 3 | wire]) + size + content


def message(*features: bytes) -> bytes:
    return field(1, 2, b"".join(features))


def feature(name: bytes, *values: bytes) -> bytes:
    return field(1, 2, field(1, 2, name) + field(2, 2, b"".join(values)))


ARRAY = feature(b"x", field(1, 2, field(1, 2, X)))
FLOATS = struct.pack("<4f", *Y)
PACKED = feature(b"y", field(2, 2, field(1, 2, FLOATS)))
UNPACKED = feature(b"y", field(2, 2, b"".join(field(1, 5, FLOATS[at : at + 4]) for at in range(0, 16, 4))))
MIXED = feature(
    b"y", field(2, 2, field(1, 2, FLOATS[:8]) + field(1, 5, FLOATS[8:12])), field(2, 2, field(1, 5, FLOATS[12:]))
)
OTHERS = [
    feature(b"n", field(3, 2, field(1, 2, b"\x96\x01\x07"))),  # an Int64List
    feature(b"name", field(1, 2, field(1, 2, b"a") + field(1, 2, b"b"))),
    feature(b"", b""),
    feature(b"z", field(2, 2, field(1, 2, FLOATS))),
]
UNKNOWN = field(9, 0, b"\x96\x01") + field(10, 1, b"12345678") + field(11, 5, b"1234") + field(12, 2, b"any")


@pytest.mark.parametrize("floats", [PACKED, UNPACKED, MIXED], ids=["packed", "unpacked", "mixed"])
def test_every_order_of_the_map_and_whatever_else_it_holds(tmp_path, floats):
    for order in itertools.permutations([ARRAY, floats, *OTHERS[:2]]):
        data = UNKNOWN + message() + message(*order) + message(UNKNOWN, *OTHERS[2:]) + UNKNOWN
        parsed = example_pb2.Example.FromString(data)
        assert parsed.features.feature["x"].bytes_list.value[0] == X
        assert list(parsed.features.feature["y"].float_list.value) == Y
        assert read(saved(tmp_path / "file", framed(data))) == (X, Y)


@pytest.mark.parametrize("length", [0, 1, 5, (1 << 19) - 40, 1 << 19, (1 << 19) + 3, 1 << 20, 2_500_000])
def test_arrays_of_any_length_come_whole(tmp_path, reader, length):
    x = random.Random(length).randbytes(length // 2) + bytes(length - length // 2)
    for beside in (b"", bytes(60_000)):
        data = framed(serialise({"a": beside, "x": x, "b": beside[:5000], "y": Y}))
        for content in (data, compressed(data, 1)):
            assert read(saved(tmp_path / "file", content), reader, length) == (x, Y)
            assert reader.array_bytes(str(tmp_path / "file")) == length


# --- what is damaged -------------------------------------------------------------------------------------------------


def test_a_flipped_bit_anywhere_in_the_record_is_found(tmp_path, reader):
    for at in range(len(RECORD)):
        damaged = bytearray(RECORD)
        damaged[at] ^= 1 << at % 8
        refused(tmp_path / "gzip", compressed(bytes(damaged), 1), reader)
        refused(tmp_path / "plain", bytes(damaged), reader)


# Of a gzip header (RFC 1952): the flag that says it is text, modification time, extra flags, operating system.
HARMLESS = {(3, 0)} | {(at, bit) for at in range(4, 10) for bit in range(8)}


def harmless(path: Path, content: bytes, reader: TfRecordReader) -> set[tuple[int, int]]:
    """The bits, by their byte, that may flip without an error. The data must then be the same."""
    found = set()
    for at, bit in itertools.product(range(len(content)), range(8)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << bit
        try:
            assert read(saved(path, bytes(damaged)), reader) == (X, Y), (at, bit)
        except DataCorrupt:
            continue
        found.add((at, bit))
    return found


@pytest.mark.slow
def test_a_flipped_bit_anywhere_in_the_compressed_file_is_found_or_harmless(tmp_path, reader):
    stored = compressed(RECORD, 0)  # not compressed, so that after its first three bits only padding means nothing
    assert harmless(tmp_path / "file", stored, reader) == HARMLESS | {(10, bit) for bit in range(3, 8)}
    content = compressed(RECORD)
    others = harmless(tmp_path / "file", content, reader) - HARMLESS
    assert {at for at, _ in others} <= set(range(10, len(content) - 8)), "its trailer is looked at"
    assert len(others) < 16, "the padding at the end, and other codes for the same bytes"


def test_a_file_that_is_cut_off_anywhere_is_found(tmp_path, reader):
    for content in (RECORD, compressed(RECORD)):
        for length in range(len(content)):
            text = refused(tmp_path / "file", content[:length], reader)
            assert ("the file is empty" in text) == (length == 0)
            assert length < 3 or "ends before it does" in text or "decompressed" in text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (RECORD + RECORD, "another record follows it, and only files of one record are read"),
        (compressed(RECORD + RECORD), "another record follows it"),
        (compressed(RECORD) * 2, "another record follows it"),
        (compressed(RECORD) + compressed(RECORD, 1), "another record follows it"),
        (compressed(RECORD) + compressed(framed(serialise({"x": X[::-1], "y": Y}))), "another record follows it"),
        (compressed(RECORD) + compressed(RECORD[:9]) + bytes(3) + compressed(RECORD), "another record follows it"),
        (compressed(RECORD) + b"\0\1", "it cannot be decompressed"),
        (compressed(b""), "the file ends before it does"),
        (b"\x1f\x8b\x08" + bytes(50), "it cannot be decompressed"),
        (b"\xff\xd8\xff\xe0" + bytes(50), "the checksum of its length does not match"),
        (framed(b""), "it has no feature x of bytes"),
        (framed(serialise({"y": Y})), "it has no feature x of bytes"),
        (framed(serialise({"x": [1.0] * 16, "y": Y})), "it has no feature x of bytes"),
        (framed(serialise({"x": X, "y": b"1234567890123456"})), "its feature y has 0 floats, and 4 are expected"),
        (framed(serialise({"x": X, "y": Y[:3]})), "its feature y has 3 floats"),
        (framed(serialise({"x": X, "y": [*Y, 0.5]})), "its feature y has 5 floats"),
        (framed(serialise({"x": X, "y": [0, float("nan"), 0, 0]})), "its feature y is not finite: [0.0, nan, 0.0"),
        (framed(serialise({"y": [0, 0, 0, -float("inf")], "x": X})), "its feature y is not finite"),
        (framed(serialise({"x": X[1:], "y": Y})), "its feature x has 63 bytes, and 64 are expected"),
        (framed(serialise({"x": X + X, "y": Y})), "its feature x has 128 bytes, and 64 are expected"),
        (framed(serialise({"x": X, "y": Y, "z": bytes(70_000)})), "it has 70,061 bytes beside its feature x"),
        (framed(serialise({"z": bytes(1 << 21), "x": X, "y": Y})), "its feature x does not begin in its first "),
        (framed(message(ARRAY, ARRAY, PACKED)), "it has a feature twice"),
        (framed(message(feature(b"x", field(1, 2, field(1, 2, X) * 2)), PACKED)), "its feature x is not one array"),
        (framed(message(PACKED, ARRAY[:-1])), "it is no tf.train.Example (a field cannot be)"),
        (framed(b"\x0b" + bytes(9)), "it is no tf.train.Example (wire type 3)"),
        (framed(b"\x02\x00"), "it is no tf.train.Example (a field cannot be)"),
        (framed(b"\xff" * 11), "it is no tf.train.Example (a number has no end)"),
        (framed(message(ARRAY, PACKED) + b"\x0a\xff"), "it is no tf.train.Example (a number has no end)"),
    ],
)
def test_what_is_no_sample_is_said(tmp_path, content, why, reader):
    assert f", record 1: {why}" in refused(tmp_path / "file", content, reader)


def mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at, many = rng.randrange(len(changed)), rng.randint(1, 4)
        changed[at : at + rng.choice((0, many))] = rng.choice((b"", rng.randbytes(many), b"\xff" * many, b"\0"))
        changed = changed or bytearray(b"\n")
    return bytes(changed)


@pytest.mark.slow
def test_whatever_has_a_good_checksum_is_read_as_protobuf_reads_it_or_refused(tmp_path):
    rng = random.Random(0)
    base = [
        UNKNOWN + message(*order) for order in ([ARRAY, PACKED], [UNPACKED, *OTHERS, ARRAY], [OTHERS[0], MIXED, ARRAY])
    ]
    same = 0
    for _ in range(700):
        data = mutated(rng.choice(base), rng)
        try:
            x, y = read(saved(tmp_path / "file", framed(data)))
            features = example_pb2.Example.FromString(data).features.feature
        except (DataCorrupt, DecodeError):  # protobuf also looks into features that are not asked for
            continue
        assert list(features["x"].bytes_list.value) == [x]
        assert list(features["y"].float_list.value) == y
        same += 1
    assert same > 70


@pytest.mark.slow
def test_nothing_is_allocated_because_a_file_says_so(tmp_path, reader):
    """Neither for a length that cannot be, nor for megabytes of zeros that a few bytes decompress to."""
    length = struct.pack("<Q", 1 << 60)
    head = length + struct.pack("<I", crc32c.masked(crc32c.by_numpy(0, length)))
    beside = serialise({"x": X, "y": Y, "z": bytes(50_000_000)})
    bomb = compressed(struct.pack("<Q", len(beside)) + RECORD[8:12] + beside, 1)
    read(saved(tmp_path / "good", RECORD), reader)  # numpy's tables are made once
    del beside
    for content in (head + bytes(100), compressed(head + bytes(100)), head + serialise({"x": X, "y": Y}), bomb):
        tracemalloc.start()
        refused(tmp_path / "file", content, reader)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < len(content) + 4_000_000


def test_zeros_behind_a_gzip_stream_are_padding(tmp_path, reader):
    """As gzip has it: a tape's blocks are filled up so."""
    for zeros in (1, 511, 300_000):
        assert read(saved(tmp_path / "file", compressed(RECORD) + bytes(zeros)), reader) == (X, Y)


def test_several_gzip_streams_hold_what_they_hold_one_after_the_other(tmp_path, reader):
    parts = [RECORD[:50], b"", RECORD[50:90], RECORD[90:]]
    streams = bytes(7).join(compressed(part) for part in parts)
    assert read(saved(tmp_path / "file", streams + bytes(9)), reader) == (X, Y)
    refused(tmp_path / "file", streams[:-1], reader)


def test_a_record_in_two_streams_of_one_size_is_read(tmp_path, reader):
    half, odd = divmod(len(RECORD), 2)
    assert not odd
    streams = [compressed(RECORD[:half]), compressed(RECORD[half:])]
    for between in (b"", bytes(5), compressed(b"")):
        assert read(saved(tmp_path / "file", between.join(streams)), reader) == (X, Y)


def test_a_file_that_cannot_be_read_is_missing_data(tmp_path):
    with pytest.raises(DataMissing, match=r"gone was there .* cannot be read \(No such file"):
        read(tmp_path / "gone")
    with pytest.raises(DataMissing, match="Is a directory"):
        read(tmp_path)


def test_no_file_stays_open(tmp_path):
    for content in (RECORD, compressed(RECORD)):
        read(saved(tmp_path / "file", content))
        refused(tmp_path / "file", content[:-1])
    assert open_below(tmp_path) == []


# --- which libraries -------------------------------------------------------------------------------------------------


@pytest.fixture
def uncached():
    caches = fastest, crc32c.google, tfrecord.libdeflate
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_the_fastest_is_taken(uncached):
    assert fastest() == TfRecordReader("deflate", "google-crc32c")
    assert fastest().decoder.startswith("deflate 0.")
    assert ", google-crc32c 1." in fastest().decoder


def test_without_them_it_is_slow_and_says_so(uncached, monkeypatch):
    monkeypatch.setitem(sys.modules, "deflate", None)
    monkeypatch.setattr(google_crc32c, "implementation", "python")
    slow = fastest()
    assert (slow.gunzip, slow.checksum) == ("zlib", "numpy")
    assert slow.decoder == f"zlib {zlib.ZLIB_RUNTIME_VERSION}, numpy {np.__version__}"
    gunzip, google = slow.warnings
    assert gunzip.startswith("slow path: zlib decompresses, 3 times as slowly as deflate (")
    assert gunzip.endswith("): pip install deflate")
    assert google.startswith("slow path: numpy takes the checksums (google-crc32c is installed without its C part)")
    assert google.endswith(": pip install google-crc32c")


def test_a_deflate_that_hides_its_c_functions_is_as_good_as_none(uncached, monkeypatch):
    monkeypatch.setattr(deflate._deflate, "__file__", "/nowhere.so")
    slow = fastest()
    assert slow.gunzip == "zlib"
    assert "as slowly as deflate (/nowhere.so" in slow.warnings[0]


@pytest.mark.parametrize("work", ["deflate", "zlib", "google-crc32c", "numpy"])
def test_other_threads_run_meanwhile(tmp_path, work):
    """Another thread counts how often it is let in; nobody is interrupted, so only who waits in C lets it in."""
    data = random.Random(0).randbytes(1 << 21)
    checksum = crc32c.IMPLEMENTATIONS.get(work, crc32c.google)()
    path, place = saved(tmp_path / "file", compressed(data, 1)), memoryview(bytearray(data))
    counted, done = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    thread = threading.Thread(target=count)
    thread.start()
    try:
        time.sleep(0.01)
        first, deadline = counted, time.monotonic() + 120
        while counted < first + 5 and time.monotonic() < deadline:
            if work in tfrecord.GUNZIP:
                with path.open("rb", buffering=0) as file:
                    tfrecord.GUNZIP[work](file, len(data))(place)
            else:
                checksum.extend(0, data[: checksum.piece])
        last = counted
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()
    assert last >= first + 5
