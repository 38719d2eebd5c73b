"""A system with two partitions and two environments, and perflogs in CSV.

RECORDING_MULTILINE=1 gives each metric a line of its own.
"""

import os

MULTILINE = os.environ.get("RECORDING_MULTILINE") == "1"
PERFVARS = "%(check_perf_var)s,%(check_perf_value)s,%(check_perf_unit)s,%(check_perf_result)s"

site_configuration = {
    "systems": [
        {
            "name": "twopart",
            "hostnames": ["twopart"],
            "partitions": [
                {"name": "cpu", "scheduler": "local", "launcher": "local", "environs": ["gnu", "cray"]},
                {"name": "gpu", "scheduler": "local", "launcher": "local", "environs": ["gnu"]},
            ],
        }
    ],
    "environments": [{"name": "gnu"}, {"name": "cray"}],
    "logging": [
        {
            "perflog_multiline": MULTILINE,
            "handlers_perflog": [
                {
                    "type": "filelog",
                    "prefix": "%(check_system)s/%(check_partition)s",
                    "level": "info",
                    "format": (
                        "%(check_job_completion_time)s,%(version)s,%(check_display_name)s,%(check_system)s,"
                        "%(check_partition)s,%(check_environ)s,%(check_jobid)s,%(check_result)s,"
                    )
                    + (PERFVARS if MULTILINE else "%(check_perfvalues)s"),
                    "format_perfvars": (
                        "%(check_perf_value)s,%(check_perf_unit)s,%(check_perf_ref)s,"
                        "%(check_perf_lower_thres)s,%(check_perf_upper_thres)s,"
                    ),
                    "append": True,
                }
            ],
        }
    ],
}
