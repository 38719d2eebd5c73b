"""docs/profiles.md says of the paper's systems what a dry run shows, and of every platform how it was verified."""

from __future__ import annotations

import re

import pytest

from platforms import checkout
from tests.docs import paper_systems
from tests.docs.paper_systems import PAGE, facts_of, renewed, table


@pytest.fixture(scope="module")
def dry_run() -> str:
    return paper_systems.dry_run()


@pytest.mark.slow
def test_the_page_says_of_the_papers_systems_what_the_dry_run_shows(dry_run: str) -> None:
    """`python -m tests.docs.paper_systems` writes the table again."""
    page = PAGE.read_text(encoding="utf-8")
    assert renewed(page, dry_run) == page
    assert table(dry_run) in page


@pytest.mark.slow
def test_a_script_that_asks_for_another_number_of_devices_is_found(dry_run: str) -> None:
    section = dry_run[dry_run.index("[archer2_mi210-1x4gpu-") :].partition("\n=")[0].replace("\\\n", " ")
    assert facts_of(section, "slurm", 1, 4, "gpu").startswith("sbatch, 1 node x 4 GPUs, ")
    with pytest.raises(AssertionError):
        facts_of(section, "slurm", 1, 8, "gpu")
    with pytest.raises(AssertionError):
        facts_of(section, "slurm", 2, 4, "gpu")


def test_the_page_says_how_every_platform_was_verified() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## How was each platform verified?")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert named >= {path.stem for path in checkout.SHIPPED.glob("*.yaml")} - {"local"}
