"""What a node's GPUs say of themselves through their vendor's tool: nvidia-smi, amd-smi or, before ROCm 6, rocm-smi.

It needs neither torch nor NVML, so that any job knows its GPUs. Facts have the names that accelerators/gpu_health.py,
which asks the libraries, gives them. What a tool does not say is absent.

Sources: nvidia-smi(1) and `nvidia-smi --help-query-gpu`; NVIDIA's MIG User Guide; ROCm/amdsmi, CHANGELOG.md and
amdsmi_cli/amdsmi_commands.py, for what amd-smi prints as JSON since ROCm 6.1.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

LIMIT_S = 5.0  # for one call of a tool: a driver that hangs must not hold up a job

Facts = Dict[str, object]
Answer = Tuple[List[Facts], Optional[str]]  # of a tool: all its GPUs, and why something is not known

DEVICE = ("name", "uuid", "pci_bus_id", "driver", "memory_bytes", "mig", "power_limit_w", "clock_max_mhz")
BETWEEN_US = ("number", "gpu_uuid")  # the GPU's number in the tool's list; of a MIG device, its GPU


class Look(NamedTuple):
    """What one look at the GPUs has shown. Both lists have the same GPUs in the same order, which is the tool's.

    devices: name, uuid (NVIDIA: its first eight digits), pci_bus_id (as `0000:c9:00.0`), driver, memory_bytes, mig (the
    profile, as `1g.10gb`; AMD: the partition; None: the GPU is whole), power_limit_w, clock_max_mhz. A MIG device has
    no memory_bytes, and the clocks, power and health of its whole GPU.
    health: uuid, clock_mhz, memory_clock_mhz, temperature_c, power_w, ecc_corrected, ecc_uncorrected (both since the
    driver was loaded), throttled (why the GPU is slower than it could be; []: it is not).
    why: why something is not known, in clauses; None: the tool has answered, or there is none.
    """

    devices: List[Facts]
    health: List[Facts]
    why: Optional[str]


def devices() -> List[Facts]:
    """Return the facts of each GPU that this job may use, as `Look` describes them; [] if none is known."""
    return look().devices


def health() -> List[Facts]:
    """Return the state of the same GPUs at this moment, as `Look` describes it."""
    return look().health


def look(environ: Mapping[str, str] = os.environ) -> Look:
    """Ask the first tool on PATH that knows GPUs for facts and health at once: a tool may take a second to start.

    CUDA_VISIBLE_DEVICES and, for AMD's, ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES say which GPUs the job may use.
    Their numbers count in the tool's order, that of the PCI bus. CUDA's differs on a node with several kinds of GPUs.
    """
    whys = []
    gpus: List[Facts] = []
    cuda = environ.get("CUDA_VISIBLE_DEVICES")
    for name, ask in (("nvidia-smi", _nvidia_smi), ("amd-smi", _amd_smi), ("rocm-smi", _rocm_smi)):
        tool = shutil.which(name, path=environ.get("PATH"))
        if not tool:
            continue
        gpus, why = ask(tool)
        whys.append(why)
        if gpus and name == "nvidia-smi":
            gpus = _visible(gpus, cuda)
            break
        if gpus:
            gpus = _visible(gpus, environ.get("ROCR_VISIBLE_DEVICES"))
            gpus = _visible(gpus, environ.get("HIP_VISIBLE_DEVICES", cuda))
            break
    known = [{key: value for key, value in gpu.items() if value is not None or key == "mig"} for gpu in gpus]
    for gpu in known:
        if "uuid" in gpu:
            gpu["uuid"] = re.sub(r"(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "", str(gpu["uuid"]))
    others = [[key for key in gpu if key == "uuid" or key not in DEVICE + BETWEEN_US] for gpu in known]
    return Look(
        devices=[{key: gpu[key] for key in DEVICE if key in gpu} for gpu in known],
        health=[{key: gpu[key] for key in keys} for gpu, keys in zip(known, others)],
        why="; ".join(why for why in whys if why) or None,
    )


def count(path: str) -> Optional[int]:
    """Return how many GPUs the tool lists, whatever a job may use; None if it lists none.

    path: where the tool is looked for, as in PATH. `nvidia-smi -L` goes on behind a GPU that is lost, where a query of
    facts says nothing of any. If it fails for another reason, the rest of its list does not count.
    """
    tool = shutil.which("nvidia-smi", path=path)
    if tool:
        listed, why = _run([tool, "-L"])
        if why and "Unable to determine the device handle" not in listed + why:
            return None
        return len(re.findall(r"^GPU \d+: .*\(UUID: ", listed, re.MULTILINE)) or None
    return len({gpu.get("pci_bus_id") for gpu in look({"PATH": path}).devices}) or None


def _visible(gpus: List[Facts], variable: Optional[str]) -> List[Facts]:
    """Return the GPUs that a variable as CUDA_VISIBLE_DEVICES leaves, in its order; None: it is not set.

    It lists numbers of GPUs or the beginnings of UUIDs. The first name that fits no GPU ends the list, as in CUDA.
    """
    if variable is None:
        return gpus
    numbers = list(dict.fromkeys(gpu["number"] for gpu in gpus))  # the MIG devices of a GPU share its number
    visible: List[Facts] = []
    for name in variable.lower().split(","):
        name = name.strip()
        if name.isdigit():
            named = [gpu for gpu in gpus if gpu["number"] in numbers[int(name) : int(name) + 1]]
        else:
            named = [gpu for gpu in gpus if any(uuid.startswith(name) for uuid in _uuids(gpu)) and name]
        if not named:
            break
        visible += [gpu for gpu in named if gpu not in visible]
    return visible


def _uuids(gpu: Facts) -> List[str]:
    return [str(gpu[key]).lower() for key in ("uuid", "gpu_uuid") if gpu.get(key)]


# --- NVIDIA -----------------------------------------------------------------------------------------------------------

NVIDIA_FIELDS = {
    "name": "name",
    "uuid": "uuid",
    "pci_bus_id": "pci.bus_id",
    "driver": "driver_version",
    "memory_bytes": "memory.total",
    "mig": "mig.mode.current",
    "power_limit_w": "enforced.power.limit",
    "clock_max_mhz": "clocks.max.sm",
    "clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "temperature_c": "temperature.gpu",
    "power_w": "power.draw",
    "ecc_corrected": "ecc.errors.corrected.volatile.total",
    "ecc_uncorrected": "ecc.errors.uncorrected.volatile.total",
    "throttled": "clocks_throttle_reasons.active",  # since R535 also clocks_event_reasons.active
}
# Bits of clocks_throttle_reasons.active, and of NVML's nvmlDeviceGetCurrentClocksThrottleReasons (nvml.h), that mean
# "slower than it could"; idle does not.
NVIDIA_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


def _nvidia_smi(tool: str) -> Answer:
    """Return all GPUs and MIG devices that nvidia-smi sees. Where a driver does not know a field, it is left out."""
    fields = dict(NVIDIA_FIELDS)
    for _ in NVIDIA_FIELDS:
        text, why = _run([tool, f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader,nounits"])
        unknown = re.search(r'Field "([\w.]+)" is not a valid field', why or "")
        if not unknown:
            break
        fields = {key: field for key, field in fields.items() if field != unknown[1]}
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == len(fields)]  # the others are warnings, with exit codes of their own
    if not rows:
        return [], why or _no_answer(tool, text)
    gpus = [{**_nvidia_facts(dict(zip(fields, row))), "number": number} for number, row in enumerate(rows)]
    if any(gpu["mig"] for gpu in gpus):
        text, unlisted = _run([tool, "-L"])
        why = why or unlisted
        gpus = [device for gpu in gpus for device in _mig_devices(gpu, text)]
    return gpus, why


def _nvidia_facts(cells: Mapping[str, str]) -> Facts:
    facts: Facts = {key: _number(cell) for key, cell in cells.items()}
    facts.update({key: _word(cells.get(key)) for key in ("name", "uuid", "driver")})
    mask = re.fullmatch(r"0x[0-9a-fA-F]+", cells.get("throttled", ""))
    bits = int(mask[0], 16) if mask else 0
    return {
        **facts,
        "pci_bus_id": (_word(cells.get("pci_bus_id")) or "").lower()[-12:] or None,  # eight digits of domain: four do
        "memory_bytes": _mebibytes(cells.get("memory_bytes")),
        "mig": "enabled" if cells.get("mig") == "Enabled" else None,
        "throttled": [text for bit, text in NVIDIA_REASONS.items() if bits & bit] if mask else None,
    }


def _mig_devices(gpu: Facts, listed: str) -> List[Facts]:
    """Return a GPU's MIG devices, which `nvidia-smi -L` lists below it; the GPU itself if it has none."""
    below = listed.partition(f"(UUID: {gpu['uuid']})")[2].partition("\nGPU ")[0]
    found = re.findall(r"^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)", below, re.MULTILINE)
    of_gpu = {**gpu, "memory_bytes": None, "gpu_uuid": gpu["uuid"]}
    return [{**of_gpu, "mig": profile, "uuid": uuid} for profile, uuid in found if gpu["mig"]] or [gpu]


# --- AMD --------------------------------------------------------------------------------------------------------------

AMD_REASONS = {  # as in accelerators/gpu_health.py. GPUs before the MI300 do not tell them apart.
    "ppt": "power cap",
    "socket_thermal": "socket thermal",
    "vr_thermal": "voltage regulator thermal",
    "hbm_thermal": "memory thermal",
    "prochot": "processor hot",
}
ROCM_SMI_SHOWS = ("productname", "uniqueid", "driverversion", "bus", "maxpower", "clocks", "temp", "power")


def _amd_smi(tool: str) -> Answer:
    """Return all GPUs that amd-smi sees. Two calls: one for what they are, one for how they are."""
    static, why = _json([tool, "static", "--json"])
    if why:
        return [], why
    metric, why = _json([tool, "metric", "--json"])
    now = {gpu.get("gpu"): gpu for gpu in _gpu_data(metric)}
    gpus = [{**_amd_facts(gpu, now.get(gpu.get("gpu"), {})), "number": gpu.get("gpu")} for gpu in _gpu_data(static)]
    return gpus, why


def _gpu_data(answer: object) -> List[Facts]:
    """Return one dict for each GPU; since ROCm 6.4 their list is below `gpu_data`."""
    listed = answer.get("gpu_data") if isinstance(answer, dict) else answer
    return [gpu for gpu in listed if isinstance(gpu, dict)] if isinstance(listed, list) else []


def _amd_facts(static: Facts, now: Facts) -> Facts:
    # ROCm 7 has socket_power_limit, ROCm 6 socket_power; 0 W is no limit, and a GPU that runs needs more than that.
    limit = _at(static, "limit", "ppt0", "socket_power_limit") or _at(static, "limit", "socket_power")
    driver = _word(_at(static, "driver", "version")) or _word(_at(static, "driver", "driver_version")) or ""
    kernel = re.match(r"Linuxversion(\S+?)\(", driver)  # the driver that comes with the kernel has no version
    partition = _word(_at(static, "partition", "accelerator_partition"))
    return {
        "name": _word(_at(static, "asic", "market_name")),
        "uuid": _amd_uuid(_at(static, "asic", "asic_serial")),
        "pci_bus_id": _word(_at(static, "bus", "bdf")),
        "driver": f"kernel {kernel[1]}" if kernel else driver or None,
        "memory_bytes": _mebibytes(_at(static, "vram", "size")),  # its "MB" are MiB
        "mig": None if partition == "SPX" else partition,
        "power_limit_w": _number(limit) or None,
        "clock_max_mhz": _number(_at(now, "clock", "gfx_0", "max_clk")) or None,
        "clock_mhz": _number(_at(now, "clock", "gfx_0", "clk")),
        "memory_clock_mhz": _number(_at(now, "clock", "mem_0", "clk")),
        "temperature_c": _number(_at(now, "temperature", "hotspot")),
        "power_w": _number(_at(now, "power", "socket_power")) or None,
        "ecc_corrected": _number(_at(now, "ecc", "total_correctable_count")),
        "ecc_uncorrected": _number(_at(now, "ecc", "total_uncorrectable_count")),
        "throttled": _amd_reasons(now),
    }


def _amd_reasons(now: Facts) -> Optional[List[str]]:
    """Return why the GPU is slower than it could be now; None: unknown."""
    said = {text: _at(now, "throttle", f"{name}_violation_status") for name, text in AMD_REASONS.items()}
    if {"ACTIVE", "NOT ACTIVE"} & set(map(str, said.values())):
        return [text for text, status in said.items() if status == "ACTIVE"]
    status = str(_at(now, "power", "throttle_status"))
    return {"THROTTLED": ["no reason given"], "UNTHROTTLED": []}.get(status)


def _rocm_smi(tool: str) -> Answer:
    """Return all GPUs that rocm-smi sees. It says nothing of errors and throttling."""
    shows = [f"--show{name}" for name in ROCM_SMI_SHOWS]
    answer, why = _json([tool, *shows, "--showmeminfo", "vram", "--json"])
    gpus: List[Facts] = []
    for name, said in answer.items() if isinstance(answer, dict) else ():
        if not name.startswith("card") or not isinstance(said, dict):
            continue
        card = {key.lower().rstrip(":"): value for key, value in said.items()}  # "Card series" is "Card Series" later
        watts = [card.get(f"{kind} graphics package power (w)") for kind in ("current socket", "average", "max")]
        facts = {
            "name": _word(card.get("card series")),
            "uuid": _amd_uuid(card.get("unique id")),
            "pci_bus_id": _word(str(card.get("pci bus", "")).lower()),
            "driver": _word(_at(answer, "system", "Driver version")),
            "memory_bytes": _number(card.get("vram total memory (b)")),
            "mig": None,
            "power_limit_w": _number(watts[2]),
            "clock_mhz": _number(card.get("sclk clock speed")),
            "memory_clock_mhz": _number(card.get("mclk clock speed")),
            "temperature_c": _number(card.get("temperature (sensor junction) (c)")),
            "power_w": _number(watts[0] or watts[1]),
        }
        gpus.append({**facts, "number": len(gpus)})
    return gpus, why


def _amd_uuid(serial: object) -> Optional[str]:
    """Return a GPU's name in ROCR_VISIBLE_DEVICES, as `GPU-d1000007e1000008`, from its serial number."""
    digits = re.fullmatch(r"0x([0-9a-f]{2,16})", str(serial).lower())
    return f"GPU-{digits[1]:0>16}" if digits else None


# --- all of them ------------------------------------------------------------------------------------------------------


def _at(answer: object, *keys: str) -> object:
    """Return what a nested dict has there; None if it has nothing."""
    for key in keys:
        answer = answer.get(key) if isinstance(answer, dict) else None
    return answer


def _word(said: object) -> Optional[str]:
    """Return a text; None for `N/A`, and for `[N/A]`, `[Not Supported]`, `[Unknown Error]` of nvidia-smi."""
    return said if isinstance(said, str) and said not in ("", "N/A") and not said.startswith("[") else None


def _number(said: object) -> Optional[float]:
    """Return a number that a tool gives as `400.00`, `(800Mhz)` or `{"value": 41, "unit": "W"}`; else None."""
    value = said.get("value") if isinstance(said, dict) else said
    found = re.fullmatch(r"\(?(-?\d+(\.\d+)?)(Mhz\))?", str(value))
    if not found:
        return None
    number = float(found[1])
    return int(number) if number.is_integer() else number


def _mebibytes(said: object) -> Optional[int]:
    number = _number(said)
    return None if number is None else int(number * 2**20)


def _json(command: Sequence[str]) -> Tuple[object, Optional[str]]:
    """Return a tool's JSON, and why it is not known. Some versions print warnings before it."""
    text, why = _run(command)
    start = re.search(r"^[\[{]", text, re.MULTILINE)
    try:
        return (None, why) if why else (json.loads(text[start.start() if start else 0 :]), None)
    except ValueError:
        return None, _no_answer(command[0], text)


def _no_answer(tool: str, text: str) -> str:
    return f"{os.path.basename(tool)} says what is no answer: {text.strip()[:100]}"


def _run(command: Sequence[str]) -> Tuple[str, Optional[str]]:
    """Return what a tool prints, and why that may be no answer; None: it is one. After LIMIT_S the tool is killed."""
    name = os.path.basename(command[0])
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, errors="replace", start_new_session=True
        )
    except OSError as error:
        return "", f"{name} cannot be started: {error.strerror}"
    try:
        printed, complained = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        _kill(process)
        return "", f"{name} has not answered within {LIMIT_S:g} s"
    if process.returncode:
        last = f"{printed}\n{complained}".strip().rpartition("\n")[2]
        return printed, f"{name} ended with exit code {process.returncode}: {last[:200]}"
    return printed, None


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a tool and what it has started. In a driver that hangs it takes no signal: it is not waited for long."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.1)
