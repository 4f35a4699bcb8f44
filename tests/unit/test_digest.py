"""The digest type and hashing of bytes and files."""

from __future__ import annotations

import errno
import os
import pickle

import pytest

from cas.digest import DIGEST_SIZE, Digest, Hasher, hash_bytes, hash_fd, raw_hash
from cas.errors import RefusedError

# From the BLAKE3 paper's test vectors: the empty input.
EMPTY = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"


def test_the_digest_is_plain_blake3():
    assert str(hash_bytes(b"")) == EMPTY
    assert raw_hash(b"") == bytes.fromhex(EMPTY)


def test_a_digest_is_its_bytes_and_shows_as_hex():
    digest = hash_bytes(b"x")
    assert digest == bytes(digest)
    assert hash(digest) == hash(bytes(digest))
    assert str(digest) == digest.hex() == f"{digest}"
    assert Digest.parse(str(digest)) == digest
    assert repr(digest) == f"Digest.parse('{digest}')"
    assert pickle.loads(pickle.dumps(digest)) == digest
    assert type(pickle.loads(pickle.dumps(digest))) is Digest


@pytest.mark.parametrize(
    "text",
    [
        "",
        EMPTY[:-1],
        EMPTY + "0",
        EMPTY.upper(),
        EMPTY[:-1] + "g",
        " " + EMPTY[1:],
        EMPTY[:-1] + "\n",
        "\u0660" * 64,
        EMPTY[:32] + " " + EMPTY[33:],
    ],
)
def test_no_other_text_is_a_digest(text):
    with pytest.raises(RefusedError, match="is not a digest"):
        Digest.parse(text)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_digest_has_its_size(size):
    with pytest.raises(RefusedError, match="32 bytes"):
        Digest(bytes(size))


@pytest.mark.parametrize("size", [0, 1, 1000, (1 << 20) - 1, 1 << 20, (8 << 20) + 5])
def test_bytes_pieces_and_files_agree(tmp_path, size):
    content = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    path = tmp_path / "f"
    path.write_bytes(content)
    hasher = Hasher()
    for at in range(0, size, 300_000):
        hasher.update(memoryview(content)[at : at + 300_000])
    fd = os.open(path, os.O_RDONLY)
    try:
        os.lseek(fd, 3, os.SEEK_SET)
        assert hash_fd(fd) == hasher.digest() == hash_bytes(content) == raw_hash(content)
        assert os.lseek(fd, 0, os.SEEK_CUR) == 3
    finally:
        os.close(fd)


def test_a_range_of_a_file_ends_where_the_file_ends(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"hello world")
    fd = os.open(path, os.O_RDONLY)
    try:
        assert hash_fd(fd, offset=6, length=3) == hash_bytes(b"wor")
        assert hash_fd(fd, offset=6, length=1 << 40) == hash_bytes(b"world")
        assert hash_fd(fd, offset=6) == hash_bytes(b"world")
        assert hash_fd(fd, offset=50) == hash_fd(fd, length=0) == hash_bytes(b"")
    finally:
        os.close(fd)


@pytest.mark.parametrize("more", [-1, 0, 1, 3 << 20, 5 << 20])
def test_a_large_file_read_ahead_has_the_digest_of_its_bytes(tmp_path, more):
    piece = bytes(range(251)) * 4177
    content = (piece * 21)[: (16 << 20) + more]
    path = tmp_path / "large"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert hash_fd(fd) == hash_fd(fd, parallel=False) == hash_bytes(content)
        inner = content[7 : 7 + (16 << 20)]
        assert hash_fd(fd, offset=7, length=16 << 20) == hash_bytes(inner)
        assert hash_fd(fd, offset=7, length=1 << 40) == hash_bytes(content[7:])
    finally:
        os.close(fd)


def test_a_read_that_fails_while_reading_ahead_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "large"
    path.write_bytes(bytes(20 << 20))
    real = os.preadv

    def failing(fd, buffers, offset):
        if offset > 8 << 20:
            raise OSError(errno.EIO, "bad sector")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="bad sector"):
            hash_fd(fd)
    finally:
        os.close(fd)


def test_digest_size_is_that_of_blake3():
    assert DIGEST_SIZE == len(raw_hash(b"")) == 32
