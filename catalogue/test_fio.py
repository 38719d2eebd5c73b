"""Storage by fio: a checkpoint that is written, data that are read, and files that are made and removed.

Tool: fio, Debian's package fio or https://github.com/axboe/fio. Tried: 3.33, Debian 12's, on ext4 on the disk of a
virtual machine with two cores. Not read: fio before 3.27, which has no engine that removes files. Not tried: Lustre,
GPFS, NFS.

It writes into the platform's `data_dir:`, or into the folder CATALOGUE_SCRATCH of the `env:` of its file, which each of
the job's nodes can write; FIO_SIZE there (default 1g) is the size of the checkpoint. The first node alone runs fio.

Primary: checkpoint (sequential writes until the storage has all of it, read back and compared), read (sequential), iops
(4 KiB at random places, 32 of them under way) and create (empty files). The server of a network's storage has a cache
of its own, which no client sees: take a FIO_SIZE above it.

It fails if the client's page cache answered in place of the storage: the kernel counts what a process has fetched from
storage (of ext4, XFS, Btrfs, F2FS and NFS; of Lustre, GPFS and others it does not, and direct I/O must do). It also
fails if the data are such as a storage that compresses stores as less.

One process does it, so that its core may be the bound of fast storage: test_ior.py has more of them.
"""

from __future__ import annotations

import pytest

from catalogue import tools
from platforms.results import one_number

FILES = 2000
FIO = f"""
fio --output-format=json --directory="$folder" --direct=1 --randrepeat=0 --refill_buffers=1 \
  --buffer_compress_percentage=0 --size=${{FIO_SIZE:-1g}} \
  --name=checkpoint --filename=data --ioengine=libaio --rw=write --bs=4m --iodepth=8 --end_fsync=1 --verify=crc32c \
  --name=read --stonewall --filename=data --ioengine=libaio --rw=read --bs=4m --iodepth=8 \
  --name=iops --stonewall --filename=data --ioengine=libaio --rw=randread --bs=4k --iodepth=32 --time_based \
    --runtime=${{FIO_RUNTIME:-10}} \
  --name=create --stonewall --ioengine=filecreate --nrfiles={FILES} --size=8m --openfiles=1 --fallocate=none \
  --name=delete --stonewall --ioengine=filedelete --nrfiles={FILES} --size=8m --openfiles=1
echo "fetched from storage: $(awk '/^read_bytes/ {{print $2}}' /proc/$$/io) bytes"
"""
pytestmark = [pytest.mark.nightly, pytest.mark.acceptance]


@pytest.mark.workload(
    command=tools.script(
        tools.SCRATCH + FIO + tools.compressed('"$folder/data"'),
        fio="Debian's package fio, or https://github.com/axboe/fio",
    ),
    launcher="none",
)
def test_fio(run, record):
    of = tools.json_in(run.log, "fio version", "fio 3.27 and newer", names="jobname")
    write_rate, read_rate = of("jobs", "checkpoint", "write", "bw_bytes"), of("jobs", "read", "read", "bw_bytes")
    assert of("global options", "direct") == "1", "fio did not use direct I/O: the page cache is no storage"
    wrote, read = of("jobs", "checkpoint", "write", "io_bytes"), of("jobs", "read", "read", "io_bytes")
    compared = of("jobs", "checkpoint", "read", "io_bytes")
    assert wrote == compared == read, f"fio wrote {wrote} bytes, compared {compared} of them, and read {read}"
    created, deleted = of("jobs", "create", "read", "total_ios"), of("jobs", "delete", "read", "total_ios")
    assert created == deleted == FILES, f"of {FILES} files, fio created {created} and deleted {deleted}"
    read += compared + of("jobs", "iops", "read", "io_bytes")
    tools.assert_from_storage(run.log, one_number(run.log, r"^fetched from storage: (\d+) bytes"), read)
    tools.assert_incompressible(run.log)
    record(
        run,
        metrics={
            "checkpoint": (write_rate / 1e9, "GB/s", "higher"),
            "read": (read_rate / 1e9, "GB/s", "higher"),
            "iops": (of("jobs", "iops", "read", "iops"), "IO/s", "higher"),
            "create": (of("jobs", "create", "read", "iops"), "files/s", "higher"),
        },
        delete_files_per_s=of("jobs", "delete", "read", "iops"),
        iops_p99_ms=of("jobs", "iops", "read", "clat_ns", "percentile", "99.000000") / 1e6,
    )
