"""A dashboard for Grafana that shows what `prometheus` and `openmetrics` export.

It is Grafana's classic JSON model, which every version since 10 imports. A data source is chosen in the dashboard. No
query keeps the labels `instance` and `job`, which Prometheus adds to what it scrapes and not to a backfill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reporting.report.data import Condition
from reporting.report.exports import families
from reporting.report.exports.exposition import Family

Json = dict[str, Any]

SCHEMA_VERSION = 39  # of Grafana 10.4 and 11; newer versions bring it up to date when they import it
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
CHOSEN = 'site=~"$site",platform=~"$platform",test=~"$test"'
OF_SITE = 'site=~"$site"'
OF_PLATFORM = 'site=~"$site",platform=~"$platform"'
PER_TEST = "site, platform, test"
PER_SERIES = f"{PER_TEST}, metric"
SERIES_NAME = "{{platform}} {{workload}} {{layout}} {{setting}} {{metric}}"
EVENT_DAYS = 8
"""How far a mark is looked for. Grafana asks for 100 points in the time shown, so 8 days are enough for two years."""
COLOURS: Mapping[Condition, str] = {
    Condition.SLOWER: "red",
    Condition.FAILED: "purple",
    Condition.SUSPECT: "orange",
    Condition.ACKNOWLEDGED: "yellow",
    Condition.BLIND: "dark-blue",
    Condition.PAUSED: "gray",
    Condition.FASTER: "blue",
    Condition.LEARNING: "light-blue",
    Condition.OK: "green",
}
NOT_JUDGED = (Condition.BLIND, Condition.PAUSED, Condition.LEARNING)
TO_DO = (Condition.SLOWER, Condition.FAILED, Condition.SUSPECT, Condition.ACKNOWLEDGED)


def dashboard() -> Json:
    """The dashboard, to be imported or provisioned."""
    return {
        "uid": "hpc-ml-bench",
        "title": "hpc-ml-bench: is anything slower?",
        "tags": ["hpc-ml-bench"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-90d", "to": "now"},
        "refresh": "15m",
        "templating": {"list": _variables()},
        "annotations": {"list": _annotations()},
        "links": [],
        "panels": _placed(_rows()),
    }


# --- queries ----------------------------------------------------------------------------------------------------------


def _last(family: Family, chosen: str = CHOSEN, **labels: str) -> str:
    """The last sample of each series. A backfill has one sample a night, so each counts for some hours.

    Args:
        labels: regular expressions of labels.
    """
    conditions = ",".join([chosen, *(f'{name}=~"{pattern}"' for name, pattern in labels.items())])
    return f"max without (instance, job) (last_over_time({family.name}{{{conditions}}}[${{hours}}h]))"


def _tests_in(*conditions: Condition) -> str:
    """How many tests stand in one of some conditions."""
    pattern = "|".join(conditions)
    return f"count(max by ({PER_TEST}) ({_last(families.CONDITION, condition=pattern)}) == 1) or vector(0)"


def _recent(family: Family) -> str:
    """The numbers of series that had one lately. A series without runs is a gap, even while its number is scraped."""
    times = _last(families.VALUE_TIME)
    return f"{_last(family)} and on ({PER_SERIES}) ({times} > time() - $hours * 3600)"


def _to_do(family: Family) -> str:
    """The numbers of series to which somebody must see."""
    pattern = "|".join(TO_DO)
    return f"{_last(family)} and on ({PER_SERIES}) ({_last(families.CONDITION, condition=pattern)} == 1)"


def _numbered_condition() -> str:
    """The condition of each series as its place in the order of urgency, from 1."""
    labels = f"{PER_TEST}, workload, layout, setting, metric"
    terms = [
        f"{place} * (max by ({labels}) ({_last(families.CONDITION, condition=condition)}) == 1)"
        for place, condition in enumerate(Condition, 1)
    ]
    return " or ".join(terms)


# --- panels -----------------------------------------------------------------------------------------------------------


def _rows() -> list[list[Json]]:
    """The panels, row by row. The rows answer: is anything slower, since when, where, why."""
    return [
        [
            _count("Slower", _tests_in(Condition.SLOWER), "red"),
            _count("Failed", _tests_in(Condition.FAILED), "purple"),
            _count("Suspect", _tests_in(Condition.SUSPECT), "orange"),
            _count("Acknowledged", _tests_in(Condition.ACKNOWLEDGED), "yellow"),
            _count("Not judged: blind, paused, learning", _tests_in(*NOT_JUDGED), "blue"),
            _age("Oldest last run", f"time() - min({_last(families.LAST_RUN)})"),
            _age("Age of this data", f"time() - min({_last(families.REPORT_TIME, OF_SITE)})"),
        ],
        [_to_do_table(), _incident_table()],
        [_state_timeline()],
        [
            _trend(
                "Each run against its pin",
                "Below 0 is worse, whatever the metric. The gate's own limits differ from series to series.",
                [(_recent(families.RUN_CHANGE), SERIES_NAME)],
                "percentunit",
            )
        ],
        [
            _trend(
                "Runs and pins, in the unit of the metric",
                "Choose one test above: tests have different units.",
                [
                    (_recent(families.VALUE), f"{SERIES_NAME} [{{{{unit}}}}]"),
                    (_recent(families.PIN), f"pin of {SERIES_NAME}"),
                ],
                "none",
            )
        ],
        [_parts(), _nodes()],
        [
            _bars(
                "What do the benchmarks cost? Device-hours in the nights of the report",
                "Repeats and visits included.",
                f"sum by (site, platform) (max by ({PER_TEST}) ({_last(families.DEVICE_SECONDS)})) / 3600",
                "{{platform}}",
                "h",
            ),
            _trend(
                "How many tests of a platform failed, night by night?",
                "A test whose jobs fail is not slower: it is not measured.",
                [(f"count by (site, platform) ({_failed()} == 1)", "{{platform}}")],
                "none",
            ),
        ],
    ]


def _failed() -> str:
    return f"max by ({PER_TEST}) ({_last(families.CONDITION, condition=Condition.FAILED)})"


def _placed(rows: Sequence[Sequence[Json]]) -> list[Json]:
    """Give each panel its number and its place: the panels of a row share the 24 columns."""
    panels: list[Json] = []
    top = 0
    for row in rows:
        width, left = 24 // len(row), 0
        for panel in row:
            panel["id"] = len(panels) + 1
            panel["gridPos"] = {"x": left, "y": top, "w": width, "h": panel.pop("height")}
            panels.append(panel)
            left += width
        top += max(panel["gridPos"]["h"] for panel in row)
    return panels


def _panel(kind: str, title: str, description: str, height: int, targets: Sequence[Json], **rest: Any) -> Json:
    for letter, target in zip("ABCDEFGH", targets, strict=False):
        target["refId"] = letter
    return {
        "type": kind,
        "title": title,
        "description": description,
        "height": height,
        "datasource": SOURCE,
        "targets": list(targets),
        "fieldConfig": {"defaults": {}, "overrides": []},
        **rest,
    }


def _now(query: str) -> Json:
    """A query for the end of the time that is shown, as a table's rows."""
    return {"datasource": SOURCE, "expr": query, "instant": True, "range": False, "format": "table"}


def _over_time(query: str, legend: str) -> Json:
    return {"datasource": SOURCE, "expr": query, "range": True, "legendFormat": legend, "interval": "1h"}


def _stat(title: str, query: str, defaults: Json) -> Json:
    return _panel(
        "stat",
        title,
        "",
        4,
        [{**_now(query), "format": "time_series"}],
        fieldConfig={"defaults": defaults, "overrides": []},
        options={
            "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
            "colorMode": "background",
            "graphMode": "none",
            "textMode": "value",
        },
    )


def _count(title: str, query: str, colour: str) -> Json:
    steps = [{"color": "green", "value": None}, {"color": colour, "value": 1}]
    return _stat(title, query, {"unit": "none", "thresholds": {"mode": "absolute", "steps": steps}})


def _age(title: str, query: str) -> Json:
    steps = [{"color": "green", "value": None}, {"color": "orange", "value": 3 * 24 * 3600}]
    return _stat(title, query, {"unit": "s", "decimals": 0, "thresholds": {"mode": "absolute", "steps": steps}})


def _to_do_table() -> Json:
    pattern = "|".join(TO_DO)
    condition = f"max by ({PER_SERIES}, condition) ({_last(families.CONDITION, condition=pattern)}) == 1"
    columns = {
        "change": (families.CHANGE, "percentunit"),
        "limit": (families.LIMIT, "percentunit"),
        "last value": (families.VALUE, "none"),
        "pin": (families.PIN, "none"),
        "since": (families.SINCE, "dateTimeAsIso"),
    }
    queries = [condition]
    names = {"Value #A": "holds"}
    overrides = []
    for letter, (name, (family, unit)) in zip("BCDEF", columns.items(), strict=True):
        factor = " * 1000" if family is families.SINCE else ""  # Grafana's times are in ms
        queries.append(f"max by ({PER_SERIES}) ({_to_do(family)}){factor}")
        names[f"Value #{letter}"] = name
        overrides.append(_unit(name, unit))
    return _table(
        "Is anything slower, and since when?",
        "Every series that is not as it should be. A negative change is worse.",
        queries,
        names,
        overrides,
        hidden=("Time", "Value #A", "site"),
    )


def _incident_table() -> Json:
    since = f"max by (platform, condition, where, why) ({_last(families.INCIDENT, OF_PLATFORM)}) * 1000"
    return _table(
        "Where, and why?",
        "Tests of one platform that changed in the same way about the same night.",
        [since],
        {"Value": "since"},
        [_unit("since", "dateTimeAsIso")],
        hidden=("Time",),
    )


def _table(
    title: str,
    description: str,
    queries: Sequence[str],
    names: Mapping[str, str],
    overrides: Sequence[Json],
    hidden: Sequence[str],
) -> Json:
    return _panel(
        "table",
        title,
        description,
        9,
        [_now(query) for query in queries],
        fieldConfig={"defaults": {"custom": {"filterable": True}}, "overrides": list(overrides)},
        options={"showHeader": True, "cellHeight": "sm"},
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": dict.fromkeys(hidden, True),
                    "indexByName": {},
                    "renameByName": dict(names),
                },
            },
        ],
    )


def _unit(field: str, unit: str) -> Json:
    return {"matcher": {"id": "byName", "options": field}, "properties": [{"id": "unit", "value": unit}]}


def _state_timeline() -> Json:
    words = {
        str(place): {"text": condition.value, "color": COLOURS[condition], "index": place}
        for place, condition in enumerate(Condition, 1)
    }
    return _panel(
        "state-timeline",
        "Since when? How each series stood, night by night",
        "The words of the gate (docs/gate.md). A gap is a night without a run.",
        14,
        [_over_time(_numbered_condition(), SERIES_NAME)],
        fieldConfig={
            "defaults": {
                "custom": {"fillOpacity": 80, "lineWidth": 0},
                "mappings": [{"type": "value", "options": words}],
            },
            "overrides": [],
        },
        options={"mergeValues": True, "showValue": "auto", "rowHeight": 0.9, "legend": {"showLegend": False}},
    )


def _trend(title: str, description: str, queries: Sequence[tuple[str, str]], unit: str) -> Json:
    return _panel(
        "timeseries",
        title,
        description,
        10,
        [_over_time(query, legend) for query, legend in queries],
        fieldConfig={
            "defaults": {"unit": unit, "custom": {"lineInterpolation": "stepAfter", "spanNulls": False}},
            "overrides": [],
        },
        options={
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull"], "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "asc"},
        },
    )


def _parts() -> Json:
    on = f"{PER_SERIES}, part"
    more = f"max by ({on}) ({_last(families.PART)}) - max by ({on}) ({_last(families.PART_BEFORE)})"
    chosen = "|".join(TO_DO)
    where = f"({more}) and on ({PER_SERIES}) ({_last(families.CONDITION, condition=chosen)} == 1)"
    return _bars(
        "Where in a step? Time that each part takes more than before",
        "wait: for the loader's next batch; h2d: the copy to the device; step: computing (docs/gate.md).",
        f"sort_desc({where})",
        "{{platform}} {{test}}: {{part}}",
        "s",
    )


def _bars(title: str, description: str, query: str, legend: str, unit: str) -> Json:
    return _panel(
        "bargauge",
        title,
        description,
        10,
        [{**_now(query), "format": "time_series", "legendFormat": legend}],
        fieldConfig={"defaults": {"unit": unit}, "overrides": []},
        options={
            "orientation": "horizontal",
            "displayMode": "basic",
            "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
        },
    )


def _nodes() -> Json:
    standing = f"max by (platform, node, standing) ({_last(families.NODE_STANDING, OF_PLATFORM)}) == 1"
    deviation = f"max by (platform, node) ({_last(families.NODE_DEVIATION, OF_PLATFORM)})"
    return _table(
        "On which node? Nodes beside the others of their platform",
        "A negative deviation is slower (docs/nodes.md).",
        [standing, deviation],
        {"Value #B": "deviation"},
        [_unit("deviation", "percentunit")],
        hidden=("Time", "Value #A"),
    )


# --- variables and annotations ----------------------------------------------------------------------------------------


def _variables() -> list[Json]:
    condition = families.CONDITION.name
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1},
        _labels("site", "Site", f"label_values({condition}, site)"),
        _labels("platform", "Platform", f'label_values({condition}{{site=~"$site"}}, platform)'),
        _labels("test", "Test", f"label_values({condition}{{{OF_PLATFORM}}}, test)"),
        {
            "name": "hours",
            "label": "A number counts for",
            "description": "How many hours a number counts. Choose more if the tests do not run every night.",
            "type": "custom",
            "query": "36 hours : 36, 8 days : 192, 32 days : 768",
            "options": [
                {"text": "36 hours", "value": "36", "selected": True},
                {"text": "8 days", "value": "192", "selected": False},
                {"text": "32 days", "value": "768", "selected": False},
            ],
            "current": {"text": "36 hours", "value": "36", "selected": True},
        },
    ]


def _labels(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": f"values of {name}"},
        "definition": query,
        "refresh": 2,  # whenever the time that is shown changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
    }


def _annotations() -> list[Json]:
    return [
        {
            "name": "Annotations & Alerts",
            "type": "dashboard",
            "builtIn": 1,
            "datasource": {"type": "grafana", "uid": "-- Grafana --"},
            "enable": True,
            "hide": True,
            "iconColor": "rgba(0, 211, 255, 1)",
        },
        _marks("What people noted", 'kind!="change"', "purple"),
        _marks("What runs report as changed", 'kind="change"', "blue"),
    ]


def _marks(name: str, kind: str, colour: str) -> Json:
    """Marks at the times that the samples have as their values, in ms as Grafana wants them."""
    events = f"last_over_time({families.EVENT.name}{{{OF_PLATFORM},{kind}}}[{EVENT_DAYS}d])"
    query = f"1000 * max by (platform, test, kind, text) ({events})"
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "iconColor": colour,
        "expr": query,
        "step": "1h",
        "target": {"expr": query, "interval": "1h", "refId": "Anno"},
        "useValueForTime": True,
        "titleFormat": "{{kind}} on {{platform}}",
        "textFormat": "{{text}} {{test}}",
        "tagKeys": "platform,kind",
    }
