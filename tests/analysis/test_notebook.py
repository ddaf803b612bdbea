"""The example notebook executes, from the project's directory and from its own."""

from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
NOTEBOOK = CHECKOUT / "examples" / "fairness.ipynb"


@pytest.mark.parametrize("directory", [CHECKOUT, NOTEBOOK.parent], ids=["from the checkout", "from examples"])
def test_notebook_executes(directory: Path) -> None:
    """Every cell runs, the numbers are those of the recorded run, the figures are pictures."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(directory)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    text = "".join(output.get("text", "") for output in outputs)
    assert len(pictures) == 2
    assert "Jain's index: 0.509" in text


def test_notebook_is_committed_without_output() -> None:
    """What it shows is made when it runs, and not kept in the repository."""
    nbformat = pytest.importorskip("nbformat")
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
