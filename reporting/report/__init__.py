"""The report of a site: its history becomes one `ReportData`; the page, the pictures and the exports are made of it."""
