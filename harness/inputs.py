"""What a session begins with: its options, the files of its site, and the platforms that there are."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import collection, naming, options
from harness.options import Options
from platforms import checkout
from platforms.checkout import Platforms
from platforms.config.schema import Site
from platforms.job import ConfigError


@dataclass(frozen=True)
class Inputs:
    """All of it stands before the first test is collected, and nothing changes it."""

    options: Options
    site: Site
    platforms: Platforms

    @property
    def marks(self) -> Mapping[str, str]:
        """The marks that the platforms' files declare, each with a sentence on the platforms that carry it."""
        platforms_of: dict[str, list[str]] = {}
        for platform in self.platforms.values():
            for mark in platform.all_marks:
                platforms_of.setdefault(mark, []).append(platform.name)
        return {mark: f"runs on {', '.join(names)}" for mark, names in platforms_of.items()}

    @property
    def not_loaded(self) -> list[str]:
        """A line on the platforms whose files have mistakes, with the first of them; none where all are loaded."""
        mistakes = [mistake for of_file in self.platforms.mistakes.values() for mistake in of_file]
        if not mistakes:
            return []
        more = f" (and {len(mistakes) - 1} more)" if mistakes[1:] else ""
        return [f"not loaded: {', '.join(self.platforms.mistakes)}: {mistakes[0]}{more}"]

    @property
    def history(self) -> Path:
        """The folder of the site's history, absolute."""
        from reporting.history.place import history_folder

        return checkout.absolute(history_folder(self.options.typed_history, self.site, self.options.site))

    def typed_for_commands(self, history: Path) -> str:
        """Write `--site=DIR` and `--history=DIR`, as far as a command that reads this history needs them.

        Folders in the checkout of a CI job of GitLab are left out: a person types the command on another machine.
        """
        from reporting.history.place import history_folder

        checkout_of_job = os.environ.get("CI_PROJECT_DIR")

        def is_of_job(folder: Path) -> bool:
            return checkout_of_job is not None and folder.resolve().is_relative_to(Path(checkout_of_job).resolve())

        site = self.options.site
        typed = "" if is_of_job(site) else checkout.site_option(site)
        is_default = checkout.is_same(history, history_folder(None, self.site, site))
        if not is_default and not is_of_job(history):
            typed += f" --history={shlex.quote(str(history))}"
        return typed.strip()


def read(config: pytest.Config) -> Inputs:
    """Read site and platforms. A mistake in site.yaml is a usage error, and so is one in a named platform's file."""
    site_folder = options.site_folder(config)
    collection.choose(config, site_folder)
    try:
        site, platforms = checkout.load(site_folder)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    resolved = options.resolve(config, site.options, site_folder)
    _refuse_unknown_layouts(resolved, platforms)
    for name, mistakes in platforms.mistakes.items():
        if name in resolved.platforms or naming.has_name_of(name, config):
            raise pytest.UsageError("\n".join(mistakes))
    _refuse_unknown_platforms(resolved, site, platforms)
    check = resolved.trials.check
    if check is not None:
        from harness import user_check

        platforms[check] = user_check.own_platform(platforms[check])
    return Inputs(resolved, site, platforms)


def _refuse_unknown_layouts(resolved: Options, platforms: Platforms) -> None:
    sets = {name for platform in platforms.values() for name in platform.layouts}
    if resolved.layouts not in sets:
        raise pytest.UsageError(
            f"--layouts: no platform has a set {resolved.layouts!r}; there are: {', '.join(sorted(sets))}"
        )


def _refuse_unknown_platforms(resolved: Options, site: Site, platforms: Platforms) -> None:
    option = "--platform" if resolved.trials.check is None else "--check"
    site_yaml = f"{resolved.site / 'site.yaml'}: enabled"
    for where, names in ((option, resolved.platforms), (site_yaml, site.enabled)):
        for name in names:
            if name not in platforms and name not in platforms.mistakes:
                known = ", ".join(sorted(platforms))
                raise pytest.UsageError(f"{where}: there is no platform {name!r}; there are: {known}")
