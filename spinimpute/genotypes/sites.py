"""Sites of one chromosome, regions of the genome, and matching a target's sites to a panel's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from spinimpute.runtime.errors import InputError, argument

LAST_POSITION = 2**31 - 1  # the largest position that BCF can hold
_MOST_DIGITS = 10  # of a position

POSITION_NOT_IN_PANEL = "position not in panel"
ALLELES_DIFFER = "alleles differ from the panel"
SWAPPED = "REF and ALT swapped"
DUPLICATE = "duplicate of an earlier typed site"

# why a record, or an ALT allele of it, makes no site
ON_ANOTHER_CHROMOSOME = "on another chromosome"
NO_ALT = "no ALT allele"
SPANNING_DELETION = "ALT * (spanning deletion)"
SYMBOLIC = "symbolic ALT"
AT_POSITION_0 = "at position 0, the telomere"
BEYOND_LAST = "at a position beyond 2,147,483,647"

# What human chromosomes are called besides, by PLINK and arrays. The pseudo-autosomal regions are told from
# the rest of X by their positions. In other species 23 to 26 are autosomes: its own name counts first.
_PARTS_OF_X = ("XY", "PAR", "PAR1", "PAR2")
_ALSO_CALLED = {
    **dict.fromkeys(("23", "25", *_PARTS_OF_X), "X"),
    "24": "Y",
    "26": "MT",
}
LAST_OF_PEOPLE = 26
_REGION = re.compile(r"(?P<chrom>.+?)(:(?P<start>[0-9,]+)((?P<dash>-)(?P<end>[0-9,]*))?)?")


def plain_chromosome(name: str) -> str:
    """The name of a chromosome without its "chr" prefix: "chr20" and "20" are the same, "chrM" is "MT".

    Print and write the name that the file uses. Whether two names mean one chromosome: `same_chromosome`.
    """
    plain = name[3:] if name[:3].lower() == "chr" and len(name) > 3 else name
    upper = plain.upper()
    if upper in ("M", "MT"):
        return "MT"
    return upper if upper in _ALSO_CALLED or upper in _ALSO_CALLED.values() else plain


def same_chromosome(name: str, chrom: str) -> bool:
    """Whether a name of a file may mean a chromosome: "chr20" 20, and "23" X; but "X" not 23."""
    plain, wanted = plain_chromosome(name), plain_chromosome(chrom)
    return plain == wanted or _ALSO_CALLED.get(plain) == wanted


def chromosome_names(chrom: str, names: Iterable[str]) -> set[str]:
    """Those of a file's names that mean a chromosome.

    Parameters
    ----------
    chrom : str
        The chromosome.
    names : iterable of str
        All names in the file.

    Returns
    -------
    set of str
        Its own name, with "chr" or without, and those of parts of X; of a file that does not have it, what it
        is called besides, unless the file has more chromosomes than people.
    """
    plain = {name: plain_chromosome(name) for name in names}
    wanted = plain_chromosome(chrom)
    parts = _PARTS_OF_X if wanted == "X" else ()
    own = {name for name in plain if plain[name] in (wanted, *parts)}
    named = wanted in plain.values()
    of_people = not any(p.isdecimal() and len(p) < 5 and int(p) > LAST_OF_PEOPLE for p in plain.values())
    return own if named or not of_people else {name for name in plain if same_chromosome(name, chrom)}


def is_position(text: str | bytes) -> bool:
    """Whether a text of a file is a position: digits, and no more of them than LAST_POSITION has."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def unusable_alt(alt: str) -> str:
    """Why an ALT allele makes no site: it is no sequence; "" for one that is."""
    return "" if alt.isalpha() else {"*": SPANNING_DELETION, ".": NO_ALT}.get(alt, SYMBOLIC)


class NoRecord(InputError):
    """A file holds nothing of what was asked for."""


class NoMatch(InputError):
    """No site of the target is a site of the panel."""


@dataclass(frozen=True)
class Region:
    """An interval of one chromosome, positions `start` to `end`, 1-based and both inclusive."""

    chrom: str
    start: int = 1
    end: int = LAST_POSITION

    @classmethod
    def parse(cls, text: str) -> Region:
        """Read a region as users write it.

        Parameters
        ----------
        text : str
            "chr20", "20:1000-2000", "20:1,000-2,000", "20:1000-" (to the end) or "20:1000" (one site).

        Returns
        -------
        Region
            With the chromosome's name as it is written.

        Raises
        ------
        InputError
            The text has another form, or the interval is empty.
        """
        form = "a region looks like 20, 20:1000-2000 or 20:1000- (positions start at 1)"
        match = _REGION.fullmatch(text.strip())
        if match is None or ":" in match["chrom"]:
            raise InputError("content", f"cannot read the region {text!r}: {form}")
        if match["start"] is None:
            return cls(match["chrom"])
        digits = [(match[name] or "").replace(",", "") for name in ("start", "end")]
        if not digits[0]:
            raise InputError("content", f"cannot read the region {text!r}: {form}")
        start = int(digits[0])
        open_end = LAST_POSITION if match["dash"] else start
        end = int(digits[1]) if digits[1] else open_end
        if not 1 <= start <= end <= LAST_POSITION:
            raise InputError(
                "content", f"the region {text!r} is empty or out of range: {form}, start no larger than end"
            )
        return cls(match["chrom"], start, end)

    def __str__(self) -> str:
        if self.end == LAST_POSITION:
            return self.chrom if self.start == 1 else f"{self.chrom}:{self.start}-"
        return f"{self.chrom}:{self.start}-{self.end}"


@dataclass(frozen=True, eq=False)
class Sites:
    """Biallelic sites of one chromosome in file order.

    Attributes
    ----------
    chrom : str
        The name used in the file.
    position : int64 (n,)
        1-based, never decreasing.
    ref, alt, id : list of str
        n texts each, as in the file; the ID is "." where there is none.
    """

    chrom: str
    position: np.ndarray
    ref: list[str]
    alt: list[str]
    id: list[str]

    def __len__(self) -> int:
        return len(self.position)

    def keys(self) -> list[tuple[int, str, str]]:
        """(position, REF, ALT) of each site, in upper case: what identifies a site on its chromosome."""
        return [
            (position, ref.upper(), alt.upper())
            for position, ref, alt in zip(self.position.tolist(), self.ref, self.alt, strict=True)
        ]

    def columns(self) -> dict[str, np.ndarray]:
        """The sites as arrays (n,), by name: `pandas.DataFrame(sites.columns())` makes a table of them.

        Returns
        -------
        dict of str to array
            chromosome, position (int64, 1-based), ref, alt, id; texts are objects.
        """
        texts = {"ref": self.ref, "alt": self.alt, "id": self.id}
        chromosome = np.full(len(self), self.chrom, dtype=object)
        of_texts = {name: np.array(column, dtype=object) for name, column in texts.items()}
        return {"chromosome": chromosome, "position": self.position, **of_texts}

    def take(self, indices: np.ndarray | slice) -> Sites:
        """The sites at `indices` (integers, booleans of length n, or a slice), in that order."""
        chosen = np.arange(len(self))[indices].tolist()
        return Sites(
            self.chrom,
            self.position[indices],
            [self.ref[i] for i in chosen],
            [self.alt[i] for i in chosen],
            [self.id[i] for i in chosen],
        )

    @classmethod
    def concatenate(cls, blocks: Sequence[Sites]) -> Sites:
        """Join at least one block of sites of the same chromosome."""
        return cls(
            blocks[0].chrom,
            np.concatenate([block.position for block in blocks]),
            [ref for block in blocks for ref in block.ref],
            [alt for block in blocks for alt in block.alt],
            [name for block in blocks for name in block.id],
        )


@dataclass(frozen=True, eq=False)
class SiteMatch:
    """Which target site is which panel site.

    Attributes
    ----------
    panel_index, target_index : int64 (m,)
        The pairs; panel_index is strictly increasing.
    reasons : dict of int to str
        Why other target sites match none, by their index, in target order.
    duplicate_of : dict of int to int
        Of those that are a duplicate, the index of the matched target site.
    """

    panel_index: np.ndarray
    target_index: np.ndarray
    reasons: dict[int, str]
    duplicate_of: dict[int, int]

    @property
    def unmatched(self) -> dict[str, int]:
        """Number of target sites by reason."""
        return dict(Counter(self.reasons.values()))

    @property
    def unmatched_index(self) -> np.ndarray:
        """int64: the target sites that are no panel site; without duplicates of earlier typed sites."""
        return np.array([i for i, reason in self.reasons.items() if reason != DUPLICATE], dtype=np.int64)


def match_sites(panel: Sites, target: Sites) -> SiteMatch:
    """Match target sites to panel sites by chromosome (without "chr"), position, REF and ALT.

    Parameters
    ----------
    panel, target : Sites
        Positions of the panel never decrease.

    Returns
    -------
    SiteMatch
        The pairs, and why other target sites match none.

    Raises
    ------
    InputError
        The chromosomes differ, or no site matches (`NoMatch`); the message says what was found on both sides
        and the likely reason.
    """
    if not same_chromosome(target.chrom, panel.chrom):
        raise InputError(
            "arguments",
            f"the panel is of another chromosome than the target: {_summary('panel', panel)}, "
            f"{_summary('target', target)}. Give the panel of chromosome {target.chrom}, or choose the "
            f"target's chromosome {panel.chrom} with {argument('region')}",
        )
    first = np.searchsorted(panel.position, target.position, side="left")
    last = np.searchsorted(panel.position, target.position, side="right")
    reasons: dict[int, str] = {}
    duplicate_of: dict[int, int] = {}
    pairs: dict[int, int] = {}  # panel site -> target site
    for index, (start, stop) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        if start == stop:
            reasons[index] = POSITION_NOT_IN_PANEL
            continue
        alleles = (target.ref[index].upper(), target.alt[index].upper())
        candidates = [(panel.ref[i].upper(), panel.alt[i].upper()) for i in range(start, stop)]
        if alleles not in candidates:
            reasons[index] = SWAPPED if alleles[::-1] in candidates else ALLELES_DIFFER
            continue
        site = start + candidates.index(alleles)
        if site in pairs:
            reasons[index], duplicate_of[index] = DUPLICATE, pairs[site]
        else:
            pairs[site] = index
    if not pairs:
        raise NoMatch("content", _nothing_matches(panel, target, dict(Counter(reasons.values()))))
    panel_index = np.array(sorted(pairs), dtype=np.int64)
    target_index = np.array([pairs[site] for site in panel_index.tolist()], dtype=np.int64)
    return SiteMatch(panel_index, target_index, reasons, duplicate_of)


def _summary(role: str, sites: Sites) -> str:
    if not len(sites):
        return f"{role} {sites.chrom} without a site"
    start, end = int(sites.position[0]), int(sites.position[-1])
    return f"{role} {sites.chrom}:{start}-{end} ({len(sites)} sites)"


def _nothing_matches(panel: Sites, target: Sites, unmatched: dict[str, int]) -> str:
    counts = ", ".join(f"{reason}: {count}" for reason, count in unmatched.items())
    found = (
        f"no target site is in the panel: {_summary('panel', panel)}, {_summary('target', target)}"
        + (f"; {counts}" if counts else "")
        + ". "
    )
    if not len(panel) or not len(target):
        return found + "Check that both files hold sites"
    if panel.position[-1] < target.position[0] or target.position[-1] < panel.position[0]:
        return found + "The array covers another region than the panel: give the panel of that region"
    most = max(unmatched, key=lambda reason: unmatched[reason])
    advice = {
        POSITION_NOT_IN_PANEL: "The target is probably on another genome build than the panel: lift it over "
        f"({argument('chain')})",
        SWAPPED: "REF and ALT are swapped in the target: set REF from the reference genome "
        "(bcftools +fixref, or plink2 --ref-from-fa force)",
        ALLELES_DIFFER: "The positions agree but not the alleles: the target is probably on another genome "
        "build or on the other strand",
    }
    return found + advice[most]


_COMPLEMENT = str.maketrans("ACGTNacgtn", "TGCANtgcan")
UNKNOWN_ALLELE = "N"


def complement(letters: str) -> str:
    """Bases as the other strand pairs with them, in the same order; other characters stay as they are."""
    return letters.translate(_COMPLEMENT)


def snp_alleles(panel: Sites) -> dict[int, list[tuple[str, str]]]:
    """REF and ALT of the panel's SNPs by position."""
    places: dict[int, list[tuple[str, str]]] = {}
    for position, ref, alt in zip(panel.position.tolist(), panel.ref, panel.alt, strict=True):
        if len(ref) == len(alt) == 1:
            places.setdefault(position, []).append((ref.upper(), alt.upper()))
    return places


def choose_alleles(letters: Iterable[str], panel: list[tuple[str, str]]) -> tuple[str, str]:
    """REF and ALT of a panel SNP that the letters fit, of either strand; else the letters themselves."""
    found = set(letters)
    for other_strand in (False, True):
        for site in panel:
            ref, alt = map(complement, site) if other_strand else site
            if found <= {ref, alt}:
                return ref, alt
    different = sorted(found) or [UNKNOWN_ALLELE]
    return different[0], different[-1] if len(different) > 1 else UNKNOWN_ALLELE
