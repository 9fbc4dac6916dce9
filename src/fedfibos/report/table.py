"""A table of a report, and its forms: LaTeX and Markdown (the page's HTML is the template's)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One entry.

    Attributes:
        text: What it says.
        bold: Whether it stands out; what for, the table's note says.
        shade: Share in [0, 1] that the background shows; None for none.
    """

    text: str
    bold: bool = False
    shade: float | None = None


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        slug: Name of its file.
        title: What it shows.
        columns: Headings.
        rows: Entries, as many as there are columns.
        note: What a reader must know of it; empty for nothing.
        words: How many of the leading columns hold words, not numbers; with two, the rows of equal first entries
            form a block, which the page heads with that entry.
        trailing_words: How many of the last columns hold words.
    """

    slug: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    words: int = 1
    trailing_words: int = 0

    @property
    def numbers(self) -> range:
        """The columns that hold numbers."""
        return range(self.words, len(self.columns) - self.trailing_words)

    @property
    def blocked(self) -> bool:
        """Whether the first column heads blocks of rows."""
        return self.words == 2

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.slug!r} has {len(self.columns)} columns, got a row of {len(row)}")


def row(*entries: str | Cell) -> tuple[Cell, ...]:
    """A row of texts and cells."""
    return tuple(entry if isinstance(entry, Cell) else Cell(entry) for entry in entries)


def latex(table: Table) -> str:
    """The table for a paper (needs ``booktabs``, and ``longtable`` for a long one); what stands out is bold."""
    spec = "".join("r" if column in table.numbers else "l" for column in range(len(table.columns)))
    lines = [" & ".join(map(escape_latex, table.columns)) + r" \\", r"\midrule"]
    block = None
    for entries in table.rows:
        texts = [rf"\textbf{{{escape_latex(cell.text)}}}" if cell.bold else escape_latex(cell.text) for cell in entries]
        if table.blocked and entries[0].text == block:
            texts[0] = ""
        elif table.blocked and block is not None:
            lines.append(r"\midrule")
        block = entries[0].text
        lines.append(" & ".join(texts) + r" \\")
    caption = escape_latex(f"{table.title}. {table.note}" if table.note else table.title)
    if len(table.rows) > MOST_ON_A_PAGE:
        head, *body = lines
        return "\n".join(
            [
                rf"\begin{{longtable}}{{{spec}}}",
                rf"\caption{{{caption}}}\label{{tab:{table.slug}}}\\",
                r"\toprule",
                head,
                body[0],
                r"\endhead",
                *body[1:],
                r"\bottomrule",
                r"\end{longtable}",
                "",
            ]
        )
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\label{{tab:{table.slug}}}",
            rf"\begin{{tabular}}{{{spec}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


MOST_ON_A_PAGE = 40
"""Rows; more go over several pages."""


def markdown(table: Table) -> str:
    """The table for a Markdown page; what stands out is bold."""
    align = ["---:" if column in table.numbers else "---" for column in range(len(table.columns))]
    lines = [table.columns, align]
    for entries in table.rows:
        lines.append([f"**{cell.text}**" if cell.bold else cell.text for cell in entries])
    return "\n".join("| " + " | ".join(text.replace("|", r"\|") for text in line) + " |" for line in lines) + "\n"


def escape_latex(text: str) -> str:
    """Plain text for LaTeX."""
    return "".join(LATEX.get(character, character) for character in text)


LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "γ": r"$\gamma$",
    "–": "--",
    "−": "$-$",
    "“": "``",
    "”": "''",
    "′": "'",
}
"""Character -> what LaTeX needs for it."""
