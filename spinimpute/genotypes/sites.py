"""Sites and alleles of a chromosome, regions of the genome, and matching of target sites to panel sites."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.structural import SPANNED, StructuralVariant
from spinimpute.runtime.errors import InputError, argument

LAST_POSITION = 2**31 - 1  # the largest position that BCF can hold
_MAX_DIGITS = 10  # digits of LAST_POSITION

POSITION_NOT_IN_PANEL = "position not in panel"
ALLELES_DIFFER = "alleles differ from the panel"
SWAPPED = "REF and ALT swapped"
DUPLICATE = "duplicate of an earlier typed site"

# reasons to skip a record or an ALT allele
ON_ANOTHER_CHROMOSOME = "on another chromosome"
NO_ALT = "no ALT allele"
SPANNING_DELETION = "ALT * (spanning deletion)"
SYMBOLIC = "symbolic ALT"
BREAKEND = "breakend ALT"
AT_POSITION_0 = "at position 0, the telomere"
BEYOND_LAST = "at a position beyond 2,147,483,647"
NO_REF = "REF is not a sequence of bases"
REF_IS_ALT = "ALT equals REF"

# Other names of human chromosomes, used in PLINK and array files. The pseudo-autosomal regions are read as X,
# as their positions distinguish them from the rest of X. In other species 23 to 26 may be autosomes. A number
# is therefore read as an alias only if the file does not contain the requested chromosome under its own name.
_X_REGION_NAMES = ("XY", "PAR", "PAR1", "PAR2")
_ALIASES = {**dict.fromkeys(("23", "25", *_X_REGION_NAMES), "X"), "24": "Y", "26": "MT"}
_LAST_HUMAN = 26
_FIELD = r"[A-Za-z0-9][A-Za-z0-9_.+()-]*"
_LABEL = re.compile(rf"<({_FIELD})\*({_FIELD}(?::{_FIELD})*)>", re.ASCII)
_REGION = re.compile(r"(?P<chrom>.+?)(:(?P<start>[0-9,]+)((?P<dash>-)(?P<end>[0-9,]*))?)?")


def plain_chromosome(name: str) -> str:
    """Return a chromosome's name without the prefix "chr": "20" for "chr20" and "MT" for "chrM".

    Use the result only to compare names; outputs keep the name in the file. See also `same_chromosome`.
    """
    plain = name[3:] if name[:3].lower() == "chr" and len(name) > 3 else name
    upper = plain.upper()
    if upper in ("M", "MT"):
        return "MT"
    return upper if upper in _ALIASES or upper in _ALIASES.values() else plain


def same_chromosome(name: str, chrom: str) -> bool:
    """Return whether `name`, found in a file, can stand for `chrom`.

    "chr20" stands for 20 and "23" for X; "X" does not stand for 23.
    """
    plain, wanted = plain_chromosome(name), plain_chromosome(chrom)
    return plain == wanted or _ALIASES.get(plain) == wanted


def chromosome_names(chrom: str, names: Iterable[str]) -> set[str]:
    """Return which of the names in a file stand for the chromosome `chrom`.

    These are its own name, with or without "chr", and for X also the names of its regions (XY, PAR1 ...). If
    the file does not contain the chromosome's own name, aliases such as 23 for X are accepted, too. They are
    not accepted if the file has a chromosome number above 26, because then the species is not human.
    """
    plain = {name: plain_chromosome(name) for name in names}
    wanted = plain_chromosome(chrom)
    regions = _X_REGION_NAMES if wanted == "X" else ()
    numbers = [int(p) for p in plain.values() if p.isdecimal() and len(p) < 5]
    if wanted in plain.values() or any(number > _LAST_HUMAN for number in numbers):
        return {name for name in plain if plain[name] in (wanted, *regions)}
    return {name for name in plain if same_chromosome(name, chrom)}


def is_position(text: str | bytes) -> bool:
    """Return whether a text consists of digits only, at most as many as LAST_POSITION has."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def unusable_alt(alt: str) -> str:
    """Return the reason to skip an ALT that is not a sequence of bases; "" if it is one."""
    if alt.isalpha():
        return ""
    if "[" in alt or "]" in alt or (alt != "." and (alt.startswith(".") or alt.endswith("."))):
        return BREAKEND
    return {SPANNED: SPANNING_DELETION, ".": NO_ALT}.get(alt, SYMBOLIC)


def alt_key(alt: str, variant: StructuralVariant | None) -> str:
    """Return ALT as in `Sites.keys`."""
    if variant is None or not alt.startswith("<"):
        return alt.upper()
    key = f"{alt.upper()};END={variant.end}"
    return f"{key};SVLEN={variant.svlen}" if variant.svlen and alt.upper().startswith("<INS") else key


def label_alt(locus: str, allele: str) -> str:
    """Return the ALT of a label, such as "<HLA-A*01:01>"; see `label_parts`."""
    return f"<{locus}*{allele}>"


def label_parts(alt: str) -> tuple[str, str] | None:
    """Return locus and allele of the ALT of a label, or None for another ALT.

    Labels are alleles that are known per person, such as HLA types. Every haplotype has one of a locus's
    labels. REF, which is N, stands for an unknown label and is not imputed. Loci, and the fields of an allele
    between colons, consist of letters, digits and _ . + ( ) -, and begin with a letter or digit.
    """
    found = _LABEL.fullmatch(alt)
    return None if found is None else (found[1], found[2])


def unusable_ref(ref: str, alt: str) -> str:
    """Return the reason to skip a panel's site because of its REF; "" if there is none."""
    if not ref.isalpha():
        return NO_REF
    return REF_IS_ALT if ref.upper() == alt.upper() else ""


class NoRecord(InputError):
    """A file has no record of the requested chromosome, region or samples."""


class NoMatch(InputError):
    """The target and the panel have no site in common."""


@dataclass(frozen=True)
class Region:
    """An interval of one chromosome, positions `start` to `end`, 1-based and both inclusive."""

    chrom: str
    start: int = 1
    end: int = LAST_POSITION

    @classmethod
    def parse(cls, text: str) -> Region:
        """Parse "chr20", "20:1000-2000", "20:1,000-2,000", "20:1000-" (to the end) or "20:1000" (one site).

        The chromosome's name is kept as written. Raises InputError for any other text or an empty region.
        """
        example = "a region looks like 20, 20:1000-2000 or 20:1000- (positions start at 1)"
        match = _REGION.fullmatch(text.strip())
        digits = [(match[name] or "").replace(",", "") for name in ("start", "end")] if match else []
        if match is None or ":" in match["chrom"] or (match["start"] is not None and not digits[0]):
            raise InputError("argument", f"cannot read the region {text!r}: {example}")
        if match["start"] is None:
            return cls(match["chrom"])
        start = int(digits[0])
        open_end = LAST_POSITION if match["dash"] else start
        end = int(digits[1]) if digits[1] else open_end
        if not 1 <= start <= end <= LAST_POSITION:
            raise InputError(
                "argument",
                f"the region {text!r} is empty or out of range. Write 20, 20:1000-2000 or 20:1000-, with "
                "start <= end and positions from 1",
            )
        return cls(match["chrom"], start, end)

    def __str__(self) -> str:
        if self.end == LAST_POSITION:
            return self.chrom if self.start == 1 else f"{self.chrom}:{self.start}-"
        return f"{self.chrom}:{self.start}-{self.end}"


@dataclass(frozen=True, eq=False)
class Sites:
    """Biallelic sites of one chromosome in file order; the ID is "." for sites without one.

    `structural` maps the index of each site of a record with symbolic ALT alleles to its INFO fields.
    """

    chrom: str  # name in the file
    position: np.ndarray  # int64 (n,), 1-based, non-decreasing
    ref: list[str]
    alt: list[str]
    id: list[str]
    structural: Mapping[int, StructuralVariant] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.position)

    def keys(self) -> list[tuple[int, str, str]]:
        """Return (position, REF, ALT) of each site, in upper case: the key of a site on its chromosome.

        The END of a structural variant follows its ALT, as in "<DEL>;END=5000". The SVLEN of an insertion
        follows too, because insertions of different lengths have the same END.
        """
        keys = [
            (position, ref.upper(), alt.upper())
            for position, ref, alt in zip(self.position.tolist(), self.ref, self.alt, strict=True)
        ]
        for index in self.structural:
            keys[index] = (keys[index][0], *self.alleles(index))
        return keys

    def alleles(self, index: int) -> tuple[str, str]:
        """Return REF and ALT of a site as in its key, see `keys`."""
        return self.ref[index].upper(), alt_key(self.alt[index], self.structural.get(index))

    def symbolic_keys(self) -> set[tuple[int, str, str]]:
        """Return the keys of symbolic alleles of structural variants, and of alleles *."""
        rows = [row for row in self.structural if self.alt[row].startswith("<")]
        if SPANNED in self.alt:
            rows += [row for row, alt in enumerate(self.alt) if alt == SPANNED]
        return {(int(self.position[row]), *self.alleles(row)) for row in rows}

    def last_position(self) -> np.ndarray:
        """Return the last position of each record, int64 (n,): END, or the last base of REF."""
        last = self.position + np.array([len(ref) - 1 for ref in self.ref], np.int64)
        for index, variant in self.written_variants().items():
            last[index] = variant.end
        return last

    def written_variants(self) -> dict[int, StructuralVariant]:
        """Return the structural variant of each record with a symbolic ALT; ALTs may be joined by commas.

        A sequence that was split from a record with symbolic alleles is not a structural variant.
        """
        return {row: one for row, one in self.structural.items() if "<" in self.alt[row]}

    def columns(self) -> dict[str, np.ndarray]:
        """Return the sites as arrays for `pandas.DataFrame`: chromosome, position, ref, alt and id."""
        texts = {"ref": self.ref, "alt": self.alt, "id": self.id}
        chromosome = np.full(len(self), self.chrom, dtype=object)
        columns = {name: np.array(column, dtype=object) for name, column in texts.items()}
        return {"chromosome": chromosome, "position": self.position, **columns}

    def take(self, indices: np.ndarray | slice) -> Sites:
        """Return the sites at `indices` (integers, booleans or a slice), in that order."""
        if isinstance(indices, slice):
            return Sites(
                self.chrom,
                self.position[indices],
                self.ref[indices],
                self.alt[indices],
                self.id[indices],
                self._take_structural(range(len(self))[indices]) if self.structural else {},
            )
        index = np.asarray(indices)
        chosen = (np.flatnonzero(index) if index.dtype == bool else index).tolist()
        return Sites(
            self.chrom,
            self.position[indices],
            [self.ref[i] for i in chosen],
            [self.alt[i] for i in chosen],
            [self.id[i] for i in chosen],
            self._take_structural(chosen) if self.structural else {},
        )

    def _take_structural(self, chosen: Iterable[int]) -> dict[int, StructuralVariant]:
        return {new: self.structural[old] for new, old in enumerate(chosen) if old in self.structural}

    @classmethod
    def concatenate(cls, blocks: Sequence[Sites]) -> Sites:
        """Join at least one block of sites of the same chromosome."""
        starts = np.cumsum([0, *map(len, blocks[:-1])]).tolist()
        structural = {
            start + row: variant
            for start, block in zip(starts, blocks, strict=True)
            for row, variant in block.structural.items()
        }
        return cls(
            blocks[0].chrom,
            np.concatenate([block.position for block in blocks]),
            [ref for block in blocks for ref in block.ref],
            [alt for block in blocks for alt in block.alt],
            [name for block in blocks for name in block.id],
            structural,
        )


@dataclass(frozen=True, eq=False)
class SiteMatch:
    """Matched pairs of a panel site and a target site, and why other target sites are unmatched."""

    panel_index: np.ndarray  # int64 (m,), strictly increasing
    target_index: np.ndarray  # int64 (m,)
    reasons: dict[int, str]  # index of each unmatched target site -> reason, in target order
    duplicate_of: dict[int, int]  # index of each duplicate -> the matched target site that it repeats

    @property
    def unmatched(self) -> dict[str, int]:
        """Number of unmatched target sites by reason."""
        return dict(Counter(self.reasons.values()))

    @property
    def unmatched_index(self) -> np.ndarray:
        """Indices of the target sites that are not in the panel, int64.

        Duplicates of an earlier typed site are not included.
        """
        return np.array([i for i, reason in self.reasons.items() if reason != DUPLICATE], dtype=np.int64)


def match_sites(panel: Sites, target: Sites) -> SiteMatch:
    """Match target sites to panel sites by chromosome (without "chr"), position, REF and ALT.

    Raises InputError if the chromosomes differ, and NoMatch, with the likely reason, if no site matches.
    """
    if not same_chromosome(target.chrom, panel.chrom):
        raise InputError(
            "mismatch",
            f"the panel and the target are on different chromosomes: {_summary('panel', panel)}, "
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
        alleles = target.alleles(index)
        candidates = [panel.alleles(i) for i in range(start, stop)]
        if alleles not in candidates:
            reasons[index] = SWAPPED if alleles[::-1] in candidates else ALLELES_DIFFER
            continue
        site = start + candidates.index(alleles)
        if site in pairs:
            reasons[index], duplicate_of[index] = DUPLICATE, pairs[site]
        else:
            pairs[site] = index
    if not pairs:
        raise NoMatch("mismatch", _nothing_matches(panel, target, dict(Counter(reasons.values()))))
    panel_index = np.array(sorted(pairs), dtype=np.int64)
    target_index = np.array([pairs[site] for site in panel_index.tolist()], dtype=np.int64)
    return SiteMatch(panel_index, target_index, reasons, duplicate_of)


def _summary(role: str, sites: Sites) -> str:
    if not len(sites):
        return f"{role} {sites.chrom} without sites"
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
        return found + "Check that both files have sites"
    if panel.position[-1] < target.position[0] or target.position[-1] < panel.position[0]:
        return found + "The target covers another region than the panel. Give the panel of that region"
    most = max(unmatched, key=lambda reason: unmatched[reason])
    advice = {
        POSITION_NOT_IN_PANEL: "The target seems to use another genome build than the panel. Lift it over "
        f"with {argument('chain')}",
        SWAPPED: "REF and ALT are swapped in the target. Set REF from the reference genome "
        "(bcftools +fixref, or plink2 --ref-from-fa force)",
        ALLELES_DIFFER: "The positions agree, the alleles do not. The target seems to use another genome "
        "build or the other strand",
    }
    return found + advice[most]


_COMPLEMENT = str.maketrans("ACGTNacgtn", "TGCANtgcan")
UNKNOWN_ALLELE = "N"


def complement(bases: str) -> str:
    """Replace each base by its complement, without reversing the order; keep symbolic alleles."""
    return bases if bases.startswith("<") else bases.translate(_COMPLEMENT)


def snp_alleles(panel: Sites) -> dict[int, list[tuple[str, str]]]:
    """Return REF and ALT of the panel's SNPs by position."""
    alleles: dict[int, list[tuple[str, str]]] = {}
    for position, ref, alt in zip(panel.position.tolist(), panel.ref, panel.alt, strict=True):
        if len(ref) == len(alt) == 1 and alt != SPANNED:
            alleles.setdefault(position, []).append((ref.upper(), alt.upper()))
    return alleles


def choose_alleles(bases: Iterable[str], panel: list[tuple[str, str]]) -> tuple[str, str]:
    """Return REF and ALT of the panel SNP that has these bases on either strand, else the bases themselves.

    For files whose calls are bases, without REF and ALT. panel: REF and ALT of the panel's SNPs there.
    """
    found = set(bases)
    for other_strand in (False, True):
        for site in panel:
            ref, alt = map(complement, site) if other_strand else site
            if found <= {ref, alt}:
                return ref, alt
    different = sorted(found) or [UNKNOWN_ALLELE]
    return different[0], different[-1] if len(different) > 1 else UNKNOWN_ALLELE


class _ExclusiveGroup(NamedTuple):
    first: int  # panel site, the first of this position
    stop: int  # after the last of this position
    site_K: np.ndarray  # int64, panel sites
    typed_K: np.ndarray  # int64, their rows in typed_TQ, -1 if untyped


@dataclass(frozen=True)
class ExclusiveAlleles:
    """Groups of panel sites, some of them typed, whose ALT alleles belong to one multi-allelic site.

    A haplotype has at most one of these alleles. Axes: T typed sites, K sites of a group, U panel sites,
    Q haplotypes.
    """

    groups: list[_ExclusiveGroup]

    @classmethod
    def of(cls, sites: Sites, typed_index: np.ndarray) -> ExclusiveAlleles:
        """Find the sites with the same position and REF and the same kind of ALT.

        The kind is whether ALT is as long as REF, and END of a structural variant. An insertion does not
        exclude a SNP at the base before it, because panels contain haplotypes with both. typed_index: the
        typed panel sites, increasing.
        """
        position = sites.position
        typed_position = np.unique(position[typed_index])
        first, stop = (np.searchsorted(position, typed_position, side) for side in ("left", "right"))
        groups = []
        for i in np.flatnonzero(stop - first > 1).tolist():
            at_position = int(first[i]), int(stop[i])
            by_kind: dict[tuple[str, bool, int | None], list[int]] = {}
            for site in range(*at_position):
                by_kind.setdefault(_kind(sites, site), []).append(site)
            for same in by_kind.values():
                site_K = np.array(same)
                typed_K = np.searchsorted(typed_index, site_K)
                typed_K[~np.isin(site_K, typed_index)] = -1
                if len(same) > 1 and typed_K.max() >= 0:
                    groups.append(_ExclusiveGroup(*at_position, site_K, typed_K))
        return cls(groups)

    def exclude(self, start: int, p_UQ: np.ndarray, typed_TQ: np.ndarray) -> None:
        """Set P(ALT) to 0 on haplotypes that carry another typed ALT allele of the same site.

        p_UQ is changed in place; its first row is panel site `start`. typed_TQ: 0 REF, 1 ALT, -1 missing. A
        typed REF excludes nothing: in a file of split multi-allelic records it may stand for any other allele
        of the site (`bcftools norm -m-` writes 1/2 as 1/0 and 0/1).
        """
        stop = start + len(p_UQ)
        low = bisect_right(self.groups, start, key=lambda group: group.stop)
        for first, _, site_K, typed_K in islice(self.groups, low, None):
            if first >= stop:
                break
            carried_KQ = (typed_TQ[typed_K] == 1) & (typed_K >= 0)[:, None]
            n_carried_Q = carried_KQ.sum(axis=0)
            for k in np.flatnonzero((site_K >= start) & (site_K < stop)):
                p_UQ[site_K[k] - start, n_carried_Q > carried_KQ[k]] = 0


def _kind(sites: Sites, site: int) -> tuple[str, bool, int | None]:
    """Return REF, whether ALT is as long as REF, and the END of a structural variant."""
    variant = sites.structural.get(site)
    same_length = len(sites.ref[site]) == len(sites.alt[site])
    return sites.ref[site].upper(), same_length, None if variant is None else variant.end
