"""ReFrame's configuration: this machine by its local scheduler, and by Slurm, a hundred jobs at once on either."""

import os

AT_ONCE = 100


def partition(scheduler: str) -> dict[str, object]:
    return {
        "name": scheduler,
        "scheduler": scheduler,
        "launcher": "local",
        "environs": ["builtin"],
        "max_jobs": AT_ONCE,
        "access": [f"--export={os.environ['EXPORT']}"] if scheduler == "slurm" else [],
    }


site_configuration = {
    "systems": [
        {
            "name": "here",
            "hostnames": [".*"],
            "max_local_jobs": AT_ONCE,
            "partitions": [partition("local"), partition("slurm")],
        }
    ]
}
