"""How an error of a device or of a compiler becomes a sentence with its whole message below."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest
import torch

from models import abort
from models.abort import abort_this_rank, as_command_error
from models.accelerators.cpu import Cpu
from models.errors import CompileFailed, DeviceOutOfMemory
from models.meter import Meter, Solo, Wire
from models.steps.eager import compile_model


def test_a_device_that_is_full_has_a_sentence_and_its_own_message_below() -> None:
    error = as_command_error(RuntimeError("out of memory on tile 7\nthe graph needs 981 kB more\nprofile: graph.json"))
    assert isinstance(error, DeviceOutOfMemory)
    sentence, *said = str(error).splitlines()
    assert sentence.startswith("the device's memory does not hold this batch (out of memory on tile 7); ask for ")
    assert said == ["out of memory on tile 7", "the graph needs 981 kB more", "profile: graph.json"]
    without_text = as_command_error(MemoryError())  # as Python raises it
    assert str(without_text).startswith("the device's memory does not hold this batch (no text); ask for ")
    alone = as_command_error(RuntimeError("CUDA out of memory"))
    assert "\n" not in str(alone)


def test_a_compiler_that_refuses_has_a_sentence_and_its_own_message_below(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_model: object) -> None:
        raise ValueError("no C++ compiler\n\nSet TORCH_LOGS for more")

    monkeypatch.setattr(torch, "compile", refuse)
    setup = SimpleNamespace(request=None)
    with pytest.raises(CompileFailed) as caught:
        compile_model(torch.nn.Linear(1, 1), Cpu(), setup)
    sentence, *said = str(caught.value).splitlines()
    assert sentence == "torch.compile failed (ValueError: no C++ compiler); train without --compile"
    assert said == ["no C++ compiler", "", "Set TORCH_LOGS for more"]


def test_the_log_has_all_of_a_message_and_the_wire_its_first_lines(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abort, "_aborting", threading.Lock())  # which a process takes once and keeps
    said = [f"loc({number}): illegal" for number in range(100)]
    error = CompileFailed("\n".join(["it does not compile", *said]))
    assert abort_this_rank(error, Meter(samples=1, wire=Wire(), group=Solo(), folder=None), None) == 4
    captured = capfd.readouterr()
    assert captured.err.splitlines() == ["error: it does not compile", *said]
    line = json.loads(captured.out.splitlines()[0].removeprefix(":::MLLOG "))
    assert line["value"] == {"gate": "compile", "text": "it does not compile", "said": said[:12]}
