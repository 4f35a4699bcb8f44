"""Whether and how small objects are compressed. The only import of zstandard.

Level 1: on Markdown and scripts of 3 KB it takes 11 µs an object and leaves 46 %; level 3 takes
14 µs and leaves the same; the negative levels take 5 to 7 µs and leave 66 to 78 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cas.errors import FormatError
from cas.objects.entries import MAX_PACKED, RAW, ZSTD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LEVEL: Final = 1

AnyBytes = bytes | memoryview

Stored = tuple[int, int, int, int]
"""Offset in the pack, stored bytes, size, encoding."""

_SMALLEST: Final = 96
"""Below this the frame's own bytes eat what could be saved."""

_TRIED: Final = 16 << 10
"""Above this a piece from the middle is tried first; below, compressing all costs no more."""
_TRIAL: Final = 4096

# Formats that are compressed already, by their first bytes.
_PACKED_MAGIC: Final = (
    b"\xff\xd8\xff",  # JPEG
    b"\x89PNG",
    b"GIF8",
    b"PK\x03\x04",  # zip, npz, docx
    b"\x1f\x8b",  # gzip
    b"\x28\xb5\x2f\xfd",  # zstd
    b"\xfd7zXZ",
    b"BZh",
    b"7z\xbc\xaf",
    b"OggS",
    b"ID3",
    b"fLaC",
    b"\x1a\x45\xdf\xa3",  # Matroska, WebM
    b"wOF2",
)
_PACKED_AT_4: Final = b"ftyp"  # MP4, HEIC, AVIF
_PACKED_AT_8: Final = (b"WEBP", b"AVI ")


class Compressor:
    """Encodes objects for a pack, one at a time.

    Args:
        level: Of zstd.
    """

    __slots__ = ("_compress",)

    def __init__(self, level: int = LEVEL) -> None:
        """Make the compression context, which is reused."""
        import zstandard  # late: start-up time

        self._compress: Callable[[bytes], bytes] = zstandard.ZstdCompressor(level=level).compress

    def encode(self, data: bytes) -> tuple[bytes, int]:
        """Return the bytes to store and their encoding: compressed only if that saves a tenth."""
        size = len(data)
        if size < _SMALLEST or data.startswith(_PACKED_MAGIC):
            return data, RAW
        if data[4:8] == _PACKED_AT_4 or data[8:12] in _PACKED_AT_8:
            return data, RAW
        if size > _TRIED:
            middle = size // 2
            trial = self._compress(data[middle : middle + _TRIAL])
            if len(trial) * 10 > _TRIAL * 9:
                return data, RAW
        stored = self._compress(data)
        if len(stored) * 10 > size * 9:
            return data, RAW
        return stored, ZSTD


class Decompressor:
    """Decodes what `Compressor` made, and refuses everything else."""

    def __init__(self) -> None:
        """Make the decompression context, which is reused."""
        import zstandard  # late: start-up time

        self._context: Any = zstandard.ZstdDecompressor()
        self._frame_size: Callable[[Any], int] = zstandard.frame_content_size
        self._error: Any = zstandard.ZstdError

    def decode(self, stored: AnyBytes, size: int) -> bytes:
        """Return the object of `size` bytes that `stored` is a frame of.

        Raises:
            FormatError: It is not; no more memory than `MAX_PACKED` was taken to find out.
        """
        try:
            # The frame's own claim decides how much memory is taken, so it is checked first.
            if size > MAX_PACKED or self._frame_size(stored) != size:
                raise FormatError(f"a compressed object is not of {size} bytes as it should be")
            content: bytes = self._context.decompress(stored)
        except self._error as error:
            raise FormatError(f"a compressed object cannot be decoded: {error}") from None
        return content

    def decode_all(self, data: AnyBytes, start: int, places: Sequence[Stored]) -> list[Any]:
        """Return the objects whose stored bytes lie in `data`; None for one that does not decode.

        Args:
            data: Bytes of a pack. Of a memoryview, what is not compressed comes back as a view.
            start: Where in the pack they begin.
            places: Offset in the pack, stored bytes, size and encoding of each object.
        """
        contents: list[AnyBytes | None] = []
        decompress = self._context.decompress
        frame_size = self._frame_size
        failure = self._error
        for offset, stored, size, encoding in places:
            at = offset - start
            content: AnyBytes | None = data[at : at + stored]
            if encoding == ZSTD:
                try:
                    # See `decode`.
                    fits = size <= MAX_PACKED and frame_size(content) == size
                    content = decompress(content) if fits else None
                except failure:
                    content = None
            elif encoding != RAW or stored != size:
                content = None
            contents.append(content)
        return contents
