"""Rows become tables, shaped like the paper's: one for each benchmark, variant, size, mode and configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from platforms.job import Run
from platforms.results import gates
from platforms.results.wire import clean
from reporting.tables import row as cells
from reporting.tables.energy_notes import energy_notes, nodes_energy
from reporting.tables.placement_notes import placement_notes
from reporting.tables.row import Row, number, part, percent, workload
from reporting.tables.token_notes import token_notes

HOME = "local"  # a table of this machine alone need not name it

# What says which run it is, in the order of the columns; every table begins with these.
IDENTITY: Mapping[str, Callable[[Row], str]] = MappingProxyType(
    {
        "platform": lambda row: row.run.platform,
        "started": cells.started,
        "hardware": lambda row: cells.hardware(row.run),
        "devices": lambda row: cells.devices(row.run),
        "setting": lambda row: cells.setting(row.run),
        "data from": lambda row: cells.data_from(row.run),
    }
)
OF_RUN = "benchmark"  # what a joined table's title does not say of all of its runs
UNIT = "unit"
OURS = ("compute thr.", "compute fr.", "effective thr.", UNIT, "spread")
FOREIGN = ("metric", "value", UNIT)
DISTURBED = ("not alone", "a virtual machine")  # begins the warning of a job whose cores others used
NUMBERS = (*(heading for heading in OURS if heading != UNIT), "value")
AGAINST_PIN = "against pin"
WARNINGS = "warnings"


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        identity: how many columns, from the first one, say which run a row is.
        numbers: the headings of columns that are aligned to the right.
        notes: lines below the table; the cells of the column `warnings` refer to them by number.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    identity: int
    notes: tuple[str, ...] = ()
    numbers: Collection[str] = NUMBERS

    @property
    def text_columns(self) -> list[int]:
        return [column for column, heading in enumerate(self.headings) if heading not in self.numbers]


def tables_of(rows: Sequence[Row], *, join: bool = False) -> list[Table]:
    """The tables of our three numbers, then those of other metrics, each in its own unit.

    Args:
        join: one table for our numbers of all runs, if all have the same size and mode, as at the end of a session.
    """
    ours: dict[str, list[Row]] = {}
    foreign: dict[str, list[Row]] = {}
    for row in rows:
        if row.run.metrics:
            foreign.setdefault(_name(row.run), []).append(row)
        if row.run.effective_throughput is not None or not row.run.metrics:
            ours.setdefault(_name(row.run), []).append(row)
    if join and len(ours) > 1:
        joined: list[Row] = []
        for members in ours.values():
            joined += members
        requests = [part(row.run, "request") for row in joined]
        if len({(request.get("size"), request.get("mode")) for request in requests}) == 1:  # no table mixes modes
            ours = {_in_common(list(ours)): joined}
    return [
        *(_our_table(name, members) for name, members in ours.items()),
        *(_foreign_table(name, members) for name, members in foreign.items()),
    ]


def _name(run: Run) -> str:
    """What all rows of one table have in common."""
    request = part(run, "request")
    settings = [str(request[name]) for name in ("variant", "size", "mode", "configuration") if request.get(name)]
    return ", ".join([workload(run), *settings])


def _in_common(names: Sequence[str]) -> str:
    words = names[0].split(", ")
    return ", ".join(word for word in words if all(word in name.split(", ") for name in names)) or "all runs"


def _our_table(name: str, rows: Sequence[Row]) -> Table:
    warnings = _Warnings()
    texts = []
    for row in rows:
        judged = "; ".join(said.short for metric, said in row.verdicts.items() if metric not in row.run.metrics)
        own = [word for word in _name(row.run).split(", ") if word not in name.split(", ")]
        texts.append([", ".join(own), *_identity(row), *_our_numbers(row.run), judged, warnings.marks(row)])
    headings = (OF_RUN, *IDENTITY, *OURS, AGAINST_PIN, WARNINGS)
    runs = [row.run for row in rows]
    units = " or ".join(dict.fromkeys(run.throughput_unit.name for run in runs))
    title = f"{name}: throughputs in {units} over all devices, spread within the job"
    speed = [*bounds(runs), *bounds_found(runs), *shares_of_peak(runs), *token_notes(runs)]
    notes = [*speed, *energy_notes(runs), *placement_notes(runs), *unknown_load(runs), *warnings.notes]
    return _table(title, headings, texts, notes)


def _foreign_table(name: str, rows: Sequence[Row]) -> Table:
    warnings = _Warnings()
    texts = []
    for row in rows:
        marks = warnings.marks(row)
        for metric, measured in row.run.metrics.items():
            values = (metric, number(measured.value), measured.unit)
            judged = row.verdicts[metric].short if metric in row.verdicts else ""
            texts.append([*_identity(row), *values, judged, marks])
    runs = [row.run for row in rows]
    notes = [*nodes_energy(runs), *placement_notes(runs), *unknown_load(runs), *warnings.notes]
    headings = (*IDENTITY, *FOREIGN, AGAINST_PIN, WARNINGS)
    return _table(f"{name}: what the test read from the log", headings, texts, notes)


def _identity(row: Row) -> list[str]:
    return [cell(row) for cell in IDENTITY.values()]


def _our_numbers(run: Run) -> list[str]:
    unit = run.throughput_unit
    return [
        number(unit.of(run.compute_throughput)),
        percent(run.compute_fraction),
        number(unit.of(run.effective_throughput)),
        unit.name,
        percent(run.spread),
    ]


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> Table:
    """A table without the columns that say nothing."""
    kept = []
    for column, heading in enumerate(headings):
        texts = {row[column] for row in rows}
        says_nothing = {
            OF_RUN: texts == {""},
            "platform": texts == {HOME},
            "started": texts == {"-"},
            AGAINST_PIN: texts == {""},
        }
        if "metric" in headings:  # other programs report less of themselves
            says_nothing["hardware"] = says_nothing["data from"] = texts == {"unknown"}
            says_nothing["devices"] = says_nothing["setting"] = texts == {"-"}
        else:
            says_nothing[UNIT] = len(texts) == 1  # the title says it
        if not says_nothing.get(heading, False):
            kept.append(column)
    return Table(
        title,
        tuple(headings[column] for column in kept),
        tuple(tuple(row[column] or "-" for column in kept) for row in rows),
        sum(headings[column] in (OF_RUN, *IDENTITY) for column in kept),
        tuple(notes),
    )


class _Warnings:
    """Numbers the warnings of a table, each of which is written once, below it."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def marks(self, row: Row) -> str:
        marks = []
        for warning in row.warnings:
            if warning not in self._texts:
                self._texts.append(warning)
            marks.append(f"[{self._texts.index(warning) + 1}]")
        return " ".join(marks) or "none"

    @property
    def notes(self) -> list[str]:
        return [f"[{position}] {text}" for position, text in enumerate(self._texts, 1)]


def bounds(runs: Sequence[Run]) -> list[str]:
    """One line on what takes most of the time: to compute, or to wait for data. None where that is not known."""
    simple = [run for run in runs if not gates.part(run.summary, "decomposition")]  # of the others more is known
    computing = [run.compute_fraction for run in simple if run.compute_fraction is not None]
    if not computing:
        return []
    waiting = [1 - fraction for fraction in computing]
    by_data = sum(fraction > 0.5 for fraction in waiting)
    if by_data == 0:
        bound = "compute"
    elif by_data == len(waiting):
        bound = "data"
    else:
        bound = f"compute, {by_data} of {len(waiting)} rows by data"
    return [f"bound by {bound}: {_range(computing)} of the time was computing, {_range(waiting)} waiting for data"]


def bounds_found(runs: Sequence[Run]) -> list[str]:
    """What bounds each run that has been decomposed, and what to try next (docs/measuring.md)."""
    lines = []
    for run in runs:
        found = gates.part(run.summary, "decomposition")
        if found.get("text"):
            which = f"{cells.of_run(run)}: " if len(runs) > 1 else ""
            following = str(found.get("next") or "").replace("PLATFORM", run.platform)
            lines.append(f"{which}{clean(str(found['text']))}{following and f'. Try: {clean(following)}'}")
    return lines


def _range(shares: Sequence[float]) -> str:
    low = f"{min(shares):.0%}"
    high = f"{max(shares):.0%}"
    if low == high:
        return low
    return f"{low} to {high}"


def unknown_load(runs: Sequence[Run]) -> list[str]:
    """One line on runs of which nobody knows whether others used the same cores. It is a remark and no doubt."""
    unknown = sum(not gates.is_load_known(run) for run in runs)
    if not unknown:
        return []
    which = f" in {unknown} of {len(runs)} rows"
    if unknown == len(runs):
        which = ""
    return [f"load not looked at{which}: no warning would say that others used the same cores"]


def shares_of_peak(runs: Sequence[Run]) -> list[str]:
    """How near computing comes to the data sheet's peak, and to matrix products on the same cores: a line each.

    Both are shares of the FLOP/s of all windows, and are left out where others used the machine in that time.
    """
    of_peak = []
    of_products = []
    limits = set()
    for run in runs:
        work = gates.number(run.summary.get("flop_per_sample"))
        if not work or not run.compute_throughput or any(text.startswith(DISTURBED) for text in run.warnings):
            continue
        device = part(run, "device")
        peak = gates.number(device.get("peak_flops"))
        devices = gates.devices_of_peak(run.start, None)
        if peak and devices and str(device.get("peak_is")).startswith("data sheet"):
            of_peak.append(min(1.0, run.compute_throughput * work / (peak * devices)))  # the gate refuses what is above
            health = gates.part(gates.part(run.summary, "health"), "before")
            limits.add(gates.number(health.get("power_limit_w")))
        products = gates.number(run.summary.get("product_flops"))
        if products:
            of_products.append(run.compute_throughput * work / products)
    lines = []
    if of_peak:
        line = f"computing at {_at(of_peak)} of the peak in the data sheet"
        watts = [f"{limit:.0f}" for limit in sorted(limit for limit in limits if limit)]
        if watts:
            line += f" (power limit {' or '.join(watts)} W)"
        lines.append(line)
    if of_products:
        lines.append(f"computing at {_at(of_products)} of what matrix products reach on the same cores")
    return lines


def _at(shares: Sequence[float]) -> str:
    if max(shares) < 0.005:
        return "less than 1%"
    return _range(shares)
