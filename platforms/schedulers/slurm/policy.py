"""A site's rules (`policy:` of a platform) checked against a rendered script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from platforms.config import sbatch_options
from platforms.job import JobSpec

if TYPE_CHECKING:
    from platforms.config.schema import Platform


def lint(spec: JobSpec, text: str, platform: Platform) -> tuple[str, ...]:
    """Return a sentence for each rule that the script breaks, with the line of the script and the key of the rule."""
    rules = platform.policy
    where = f"{platform.source}: policy"
    line_of = _lines_by_option(text)
    problems = []
    for option, why in rules.forbidden.items():
        if option in line_of:
            problems.append(f"line {line_of[option]}: {option} is forbidden here: {why} ({where}: forbidden)")
    for option, why in rules.required.items():
        if option not in line_of:
            problems.append(f"line 1: {option} is missing: {why} ({where}: required)")
    problems += _exceeded_limits(spec, platform, line_of, where)
    return tuple(problems)


def _exceeded_limits(spec: JobSpec, platform: Platform, line_of: Mapping[str, int], where: str) -> Iterator[str]:
    rules = platform.policy
    if rules.max_nodes is not None and spec.layout.nodes > rules.max_nodes:
        line = line_of.get("--nodes", 1)
        yield f"line {line}: {spec.layout.nodes} nodes are more than {rules.max_nodes} ({where}: max_nodes)"
    if rules.max_time_s is not None and spec.time_limit_s > rules.max_time_s:
        line = line_of.get("--time", 1)
        yield f"line {line}: {spec.time_limit_s:g} s are more than {rules.max_time_s:g} s ({where}: max_time)"
    if rules.max_running is not None and platform.max_running > rules.max_running:
        yield (
            f"line 1: max_running: {platform.max_running} are more jobs at a time than {rules.max_running} "
            f"({where}: max_running)"
        )


def _lines_by_option(text: str) -> dict[str, int]:
    """The number of the last line that sets each option of the #SBATCH lines, by the option's long form."""
    line_of = {}
    for number, directive in sbatch_options.directives_of_script(text).items():
        for option in sbatch_options.parse_options(directive):
            line_of[option.name] = number
    return line_of
