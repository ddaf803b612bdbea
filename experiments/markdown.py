"""Tables of the pages that experiments write."""

from collections.abc import Sequence


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 0) -> str:
    """Return a table in Markdown, its lines ended; the first `words` columns are text, the others numbers.

    Examples
    --------
    >>> print(markdown_table(["policy", "Jain"], [["a|b", "0.5"]], words=1), end="")
    | policy | Jain |
    | --- | ---: |
    | a\\|b | 0.5 |
    """
    sides = ["---" if column < words else "---:" for column in range(len(head))]
    lines = [head, sides, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
