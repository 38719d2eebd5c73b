"""Texts of the cluster that stand in one line of ours."""

from __future__ import annotations

from platforms.schedulers.kubernetes.objects.fields import one_line


def test_a_long_text_is_cut_to_the_limit() -> None:
    assert one_line("no nodes\n  are free", 17) == "no nodes are free"
    assert one_line("no nodes\n  are free", 16) == "no nodes are fr…"
    assert one_line("no nodes\n  are free", 14) == "no nodes are…"
