"""Pictures of a report's numbers as SVG without a script: `spark`, `trend`, `bars`, `split_bars`."""
