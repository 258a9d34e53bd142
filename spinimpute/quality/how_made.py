"""How the output of a run was made: what its report says of panel, map, build and model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from spinimpute.genotypes.builds import build_of
from spinimpute.panels.parts import part_of
from spinimpute.panels.reference import ReferencePanel

_COMMAND = "##spinimpute_command="  # as the command line gives it to the header


@dataclass
class HowMade:
    """What an output was made with and of, collected from one chromosome after the other.

    Attributes
    ----------
    stated : dict of str to list of str
        What there is to say, each once, by what it is about.
    """

    stated: dict[str, list[str]] = field(default_factory=dict)

    def state(self, what: str, text: str) -> None:
        """Say something of `what`, unless it has been said."""
        said = self.stated.setdefault(what, [])
        if text not in said:
            said.append(text)

    def state_run(self, header_lines: Sequence[str], model: str) -> None:
        """State program, command and model.

        Parameters
        ----------
        header_lines : sequence of str
            As of `OutputSettings`: among them may be the command.
        model : str
            What imputed.
        """
        self.state("program", f"spinimpute {version('spinimpute')}")
        commands = [line.removeprefix(_COMMAND) for line in header_lines if line.startswith(_COMMAND)]
        self.state("command", commands[0] if commands else "none: called from Python")
        self.state("model", model)

    def state_panel(self, panel: ReferencePanel) -> None:
        """State which panel it was, of what it was made, with which map, on which build."""
        made, part = panel.provenance, part_of(panel)
        source = made.get("source", made.get("panel", "a source that it does not name"))
        name = panel.path.name if part is None else f"{panel.path.name} {part.name}"
        self.state("panel", f"{name}: {panel.n_haplotypes:,} haplotypes, {panel.n_sites:,} sites")
        self.state("panel's checksum", f"{name}: {panel.checksum}{panel.made_of}")
        self.state("panel's source", f"{name}: {source}, by spinimpute {made.get('spinimpute', '')}")
        self.state("genetic map", f"{name}: {made.get('map', 'one that it does not name')}")
        if "map tuned" in made:
            self.state("genetic map", f"{name}: tuned to its haplotypes")
        self.state("panel's genome build", _build(panel.contig_line, panel.chrom))

    def state_target(self, name: str, contig_line: str, chrom: str) -> None:
        """State a target's file, and its build by the line of its header that names the chromosome."""
        self.state("target", name)
        self.state("target's genome build", _build(contig_line, chrom))

    def rows(self) -> list[tuple[str, str]]:
        """What it is about, and what is said; nothing of it again where several things are said."""
        return [
            (what if i == 0 else "", text)
            for what, texts in self.stated.items()
            for i, text in enumerate(texts)
        ]


def _build(contig_line: str, chrom: str) -> str:
    return build_of(contig_line, chrom) or f"not stated for chromosome {chrom}"
