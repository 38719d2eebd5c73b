"""A site's rules (`policy:` of a platform) against a rendered script: each finding names the rule and the line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from platforms.config import sbatch_options
from platforms.job import JobSpec

if TYPE_CHECKING:
    from platforms.config.schema import Platform


def lint(spec: JobSpec, text: str, platform: Platform) -> tuple[str, ...]:
    """What the rules have against the script, a sentence each; () when nothing."""
    rules, where = platform.policy, f"{platform.source}: policy"
    options = dict(_options(text))
    found = [
        f"line {options[option]}: {option} is forbidden here: {why} ({where}: forbidden)"
        for option, why in rules.forbidden.items()
        if option in options
    ]
    found += [
        f"line 1: {option} is missing: {why} ({where}: required)"
        for option, why in rules.required.items()
        if option not in options
    ]
    found += _limits(spec, platform, options, where)
    return tuple(found)


def _limits(spec: JobSpec, platform: Platform, options: dict[str, int], where: str) -> Iterator[str]:
    rules = platform.policy
    if rules.max_nodes is not None and spec.layout.nodes > rules.max_nodes:
        line = options.get("--nodes", 1)
        yield f"line {line}: {spec.layout.nodes} nodes are more than {rules.max_nodes} ({where}: max_nodes)"
    if rules.max_time_s is not None and spec.time_limit_s > rules.max_time_s:
        line = options.get("--time", 1)
        yield f"line {line}: {spec.time_limit_s:g} s are more than {rules.max_time_s:g} s ({where}: max_time)"
    if rules.max_running is not None and platform.max_running > rules.max_running:
        yield (
            f"line 1: max_running: {platform.max_running} are more jobs at a time than {rules.max_running} "
            f"({where}: max_running)"
        )


def _options(text: str) -> Iterator[tuple[str, int]]:
    """Every option of the #SBATCH lines in its long form, with the number of its line."""
    for number, line in sbatch_options.directives_of_script(text).items():
        for option in sbatch_options.parse_options(line):
            yield option.name, number
