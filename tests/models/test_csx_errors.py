"""What an error of cerebras.pytorch or of its cluster means: the exit code, and a sentence in its own words."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from models.errors import CommandError
from models.steps.csx_errors import errors_of_cluster
from tests.models.vendors import CEREBRAS, importable

# By exit code: classes, and what they say.
MEANINGS: dict[int, list[tuple[str, str]]] = {
    69: [
        ("errors.ApplianceRuntimeServerError", "WGT server 3 was killed"),
        ("errors.ApplianceHealthPollException", "system 2"),
        ("errors.ClusterJobScheduleError", "no free system"),
        ("grpc.RpcError", "UNAVAILABLE"),
        ("errors.ApplianceUnknownError", "Received gRPC error (StatusCode.UNAVAILABLE)"),
        ("Exception", "Failed to ping address: 10.0.0.1. Please check network connectivity"),
    ],
    78: [
        ("errors.ClusterJobInitError", "mount path /home/of/somebody is not on a volume of the cluster"),
        ("errors.ApplianceRuntimeServerError", "Error detected in WRK #0: No module named 'PIL'"),
        ("RuntimeError", "Auto-configuring mount_dirs and python_paths failed."),
        ("cluster.client.MissingVolumeError", "no volume"),
        ("errors.ApplianceVersionError", "server is 2.9.0"),
    ],
    1: [
        ("errors.ApplianceResourceExhausted", "exhaustion of resources at Coordinator server"),
        ("errors.ApplianceResourceExhausted", "RESOURCE_EXHAUSTED: 'thread quota' while sending sync request"),
        ("errors.ClusterJobInitError", "Execute job init failed: 7"),
        ("errors.ApplianceRuntimeJobTimeoutError", "Appliance job timer time out after 60s"),
        ("errors.ApplianceRuntimeServerError", "Error detected in WRK #1. Status message: ValueError: 3"),
        ("grpc.RpcError", "INVALID_ARGUMENT"),
        ("errors.ApplianceClientException", "something"),
    ],
    3: [("errors.ApplianceNanError", "NaN in tensor loss")],
    4: [
        ("errors.ApplianceCompilationError", "no kernel for cirh.Pool"),
        ("RuntimeError", "Lowering failed due to `unsupported op`"),
    ],
    5: [("errors.ApplianceCompilationError", "out of memory: the weights do not fit")],
    65: [
        (
            "errors.ApplianceRuntimeServerError",
            "Error detected in WRK #0. Status message: DataCorrupt: 1.JPEG is cut off",
        )
    ],
    66: [("errors.ApplianceRuntimeServerError", "Error detected in WRK #0. Status message: FileNotFoundError: /d")],
}


@pytest.fixture(scope="module", autouse=True)
def package() -> Iterator[None]:
    with importable(CEREBRAS):
        yield


def made(name: str, text: str) -> Exception:
    """An error of a class of cerebras.appliance, of grpc, or of Python."""
    module, _, kind = name.rpartition(".")
    found = {"": "builtins", "grpc": "grpc"}.get(module, f"cerebras.appliance.{module}")
    error: Exception = getattr(importlib.import_module(found), kind)(text)
    return error


def judged(error: Exception) -> CommandError:
    with pytest.raises(CommandError) as caught, errors_of_cluster():
        raise error
    return caught.value


@pytest.mark.parametrize("code", MEANINGS)
def test_each_error_of_the_package_has_an_exit_code(code: int) -> None:
    found = {meaning: judged(made(*meaning)).exit_code for meaning in MEANINGS[code]}
    assert found == dict.fromkeys(MEANINGS[code], code)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("errors.ApplianceCompilationError", "no kernel", "Cerebras' compiler refused the program: no kernel"),
        ("errors.ApplianceCompilationError", "out of memory", "the compiled program does not fit: out of memory"),
        (
            "errors.ApplianceResourceExhausted",
            "the stack",
            "the cluster ran out of a resource (memory, threads, or the size of a message): the stack",
        ),
        (
            "errors.ApplianceRuntimeServerError",
            "WGT server 3 was killed",
            "the job on the cluster failed (ApplianceRuntimeServerError): WGT server 3 was killed",
        ),
        ("Exception", "Failed to ping", "the cluster does not answer; ask its administrators: Failed to ping"),
        ("errors.ApplianceVersionError", "it is 2.9.0", "the cluster's software is of another release: it is 2.9.0"),
    ],
)
def test_the_sentence_ends_with_the_words_of_the_package(name: str, text: str, sentence: str) -> None:
    assert str(judged(made(name, text))) == sentence


def test_several_errors_are_judged_by_the_first() -> None:
    """As the package raises them for several weights."""
    error = judged(ExceptionGroup("Errors encountered", [made("errors.ApplianceResourceExhausted", "out of memory")]))
    assert error.exit_code == 5
    assert str(error) == "the cluster's memory does not hold this: out of memory"


def test_an_error_of_ours_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="of ours"), errors_of_cluster():
        raise RuntimeError("of ours")
