"""Inference by vLLM: its server on the first node, and its own client, `vllm bench serve`, beside it.

Tool: https://github.com/vllm-project/vllm. In the `env:` of the platform's file VLLM_MODEL is the model, as `vllm
serve` takes it; VLLM_SERVE and VLLM_BENCH have more arguments of the two, and the later of two counts:

    VLLM_SERVE: --tensor-parallel-size 4         # default: the node's devices
    VLLM_BENCH: --num-prompts 1000 --request-rate 8 --goodput ttft:500 tpot:50

Not tried: this test reads results that others have published, of 0.25.1, and the keys of May 2025. Other prompts, rates
or lengths are other numbers: choose them once. By default 200 prompts of 1024 random tokens come at once, with 128
tokens to be answered.

Primary: output (tokens/s of all requests), ttft and tpot, the medians of the times to the first token and of each
further one, if there is one, and goodput (requests/s within --goodput's limits, where VLLM_BENCH asks for it). It fails
if a request failed, of which the client's exit status says nothing. The server must answer within VLLM_WAIT seconds
(default 1200).
"""

from __future__ import annotations

import re

import pytest

from catalogue import tools

VLLM = """
[ -n "$VLLM_MODEL" ] || { echo "VLLM_MODEL in the platform's env: names no model: catalogue/test_vllm.py"; exit 127; }
port=${VLLM_PORT:-8000} left=${VLLM_WAIT:-1200}
healthy() { curl -sf -o /dev/null "http://127.0.0.1:$port/health"; }
! healthy || { echo "another server answers on port $port: VLLM_PORT"; exit 1; }
vllm serve "$VLLM_MODEL" --port "$port" --tensor-parallel-size {devices_per_node} $VLLM_SERVE &
server=$!
folder=$(mktemp -d)
trap 'kill $server 2>/dev/null || true; wait $server || true; rm -rf "$folder"' EXIT
until healthy; do
  kill -0 $server 2>/dev/null || { echo "the server ended before it answered"; exit 1; }
  [ $((left -= 1)) -gt 0 ] || { echo "the server does not answer: VLLM_WAIT"; exit 1; }
  sleep 1
done
vllm bench serve --model "$VLLM_MODEL" --port "$port" --dataset-name random --random-input-len 1024 \\
  --random-output-len 128 --num-prompts 200 --seed 0 --save-result --result-dir "$folder" \\
  --result-filename result.json $VLLM_BENCH
cat "$folder/result.json"
"""
NEEDS = {"vllm": "https://github.com/vllm-project/vllm", "curl": "Debian's package curl"}


@pytest.mark.workload(command=tools.script(VLLM, **NEEDS), launcher="none")
def test_vllm(run, record):
    of = tools.json_in(run.log, "date", "the result of `vllm bench serve`, of vLLM 0.8 and newer")
    said = of(kind=dict)
    asked, completed, failed = of("num_prompts"), of("completed"), said.get("failed", 0)  # which vLLM of 2025 lacks
    assert (completed, failed) == (asked, 0), f"{completed} of {asked} requests completed, {failed} failed"
    metrics = {
        "output": (of("output_throughput"), "tokens/s", "higher"),
        "ttft": (of("median_ttft_ms"), "ms", "lower"),
    }
    if of("total_output_tokens") > completed:  # else no answer has a second token
        metrics |= {"tpot": (of("median_tpot_ms"), "ms", "lower")}
    goodput = said.get("request_goodput", said.get("request_goodput:"))  # the latter: up to 2025
    if goodput is not None:
        assert goodput > 0, "no request was within the limits of --goodput"
        metrics |= {"goodput": (goodput, "requests/s", "higher")}
    tail = re.compile(r"(p[\d.]+)_(ttft|tpot)_ms")  # p99, or what --metric-percentiles asks for
    tails = {f"{found[2]}_{found[1]}_ms": of(found[0]) for found in map(tail.fullmatch, said) if found}
    record(run, metrics=metrics, model=of("model_id"), requests_per_s=of("request_throughput"), **tails)
