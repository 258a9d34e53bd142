"""Is a file a whole VCF or BCF? Checked by its first and last bytes, before any record is read.

The reader library opens truncated files without complaint and reports other files in its own terms.
"""

import gzip
import zlib
from pathlib import Path

from spinimpute.errors import InputError

# SAM specification, section 4.1.2: the empty block that ends every BGZF file
_BGZF_EOF = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
_GZIP_MAGIC = b"\x1f\x8b"
_VCF_MAGIC = b"##fileformat=VCF"
_BCF_MAGIC = b"BCF\x02"


def check_variant_file(path: Path, role: str) -> None:
    """Raise InputError unless `path` starts and ends like a VCF, VCF.gz or BCF file.

    role: what the file is ("panel", "target"), for the message. A pipe is not checked: reading consumes it.
    """

    def error(what: str) -> InputError:
        return InputError(f"{role} {path}: {what}")

    if not path.exists():
        raise error("there is no such file")
    if path.is_dir():
        raise error("this is a folder; give a VCF, VCF.gz or BCF file")
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            head = file.read(18)
            size = file.seek(0, 2)
            file.seek(max(size - len(_BGZF_EOF), 0))
            tail = file.read()
    except OSError as failure:
        raise error(f"cannot be read: {failure.strerror}") from failure
    if not head:
        raise error("the file is empty")
    content = head
    if head.startswith(_GZIP_MAGIC):
        try:
            with gzip.open(path) as decompressed:
                content = decompressed.read(len(_VCF_MAGIC))
        except (OSError, EOFError, zlib.error) as failure:
            raise error(f"the compressed file is damaged ({failure}); get it again") from failure
    if not content.startswith((_VCF_MAGIC, _BCF_MAGIC)):
        kind = "a compressed file, but not of a VCF" if content is not head else "no VCF or BCF file"
        raise error(f"this is {kind}: it starts with {content[:16]!r}, a VCF with '##fileformat=VCF'")
    # htslib takes a last line that is cut inside a genotype ("0|1" to "0") for a whole one
    if head.startswith(_VCF_MAGIC) and not tail.endswith(b"\n"):
        raise error(
            "the file is truncated: its last line has no end. Get it again; if it is whole, add a newline"
        )
    if _is_bgzf(head) and tail != _BGZF_EOF:
        raise error("the file is truncated: the block that ends a BGZF file is missing; copy the file again")


def starts_as_variant_file(path: Path) -> bool:
    """Whether the content, unpacked if need be, starts as a VCF or BCF does; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(len(_VCF_MAGIC))
        if content.startswith(_GZIP_MAGIC):
            with gzip.open(path) as decompressed:
                content = decompressed.read(len(_VCF_MAGIC))
    except (OSError, EOFError, zlib.error):
        return False
    return content.startswith((_VCF_MAGIC, _BCF_MAGIC))


def repeated_sample(path: Path) -> str | None:
    """The name of a sample that the header of a VCF has twice, if there is one and the header can be read."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP_MAGIC
        with gzip.open(path) if packed else path.open("rb") as text:
            for line in text:
                if line.startswith(b"#CHROM"):
                    names = line.decode(errors="replace").rstrip("\r\n").split("\t")[9:]
                    return next((name for name in names if names.count(name) > 1), None)
                if not line.startswith(b"#"):
                    return None
    except (OSError, EOFError, zlib.error):
        return None
    return None


def fresh_index(path: Path) -> bool:
    """Whether there is a .csi or .tbi index not older than the file; an older one may be of other data."""
    for suffix in (".csi", ".tbi"):
        index = path.with_name(path.name + suffix)
        if index.is_file() and path.is_file():
            return index.stat().st_mtime >= path.stat().st_mtime
    return False


def _is_bgzf(head: bytes) -> bool:
    """A gzip member with the extra field "BC"; plain gzip has no block that ends the file."""
    return head[:4] == b"\x1f\x8b\x08\x04" and head[12:14] == b"BC"
