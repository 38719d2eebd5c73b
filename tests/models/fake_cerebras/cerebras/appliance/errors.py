"""cerebras-pytorch 2.10.0: appliance/errors.py, the classes that models/ tells apart."""

from __future__ import annotations


class ApplianceClientException(Exception): ...


class ApplianceCompilationError(ApplianceClientException): ...


class ApplianceResourceExhausted(ApplianceClientException): ...


class ApplianceRuntimeServerError(ApplianceClientException): ...


class ApplianceVersionError(ApplianceClientException): ...


class ApplianceUnknownError(ApplianceClientException): ...


class ApplianceCorruptionError(ApplianceClientException): ...


class ApplianceHealthPollException(ApplianceCorruptionError): ...


class ApplianceDeadlockError(ApplianceClientException): ...


class ApplianceNanError(ApplianceClientException): ...


class ApplianceTensorDropped(ApplianceClientException): ...


class ApplianceRequestCancelled(ApplianceClientException): ...


class ApplianceServiceInterrupted(ApplianceClientException): ...


class ApplianceRuntimeJobTimeoutError(ApplianceClientException): ...


class ApplianceUserVenvClusterVolumeError(ApplianceClientException): ...


class ClusterJobCancelledByCsctl(ApplianceClientException): ...


class ClusterJobScheduleError(ApplianceClientException):
    def __init__(self, job_id: str, message: str) -> None:
        super().__init__(message)


class ClusterJobInitError(ApplianceClientException):
    def __init__(self, job_id: str, message: str) -> None:
        super().__init__(message)
