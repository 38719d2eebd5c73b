"""Which counter of a node's network card is far above what else was counted, in plain words.

Sources of the meanings: those of models/node_network.py, and of Slingshot's the manual pages of HPE's Cassini counters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FATAL: Mapping[str, str] = {
    "link_downed": "lost its link ({} x)",
    "hni_pcs_uncorrected_cw": "received code words with errors that could not be corrected ({} x)",
}
MEANINGS: Mapping[str, str] = {
    **FATAL,
    "port_xmit_wait": "waited in {} ticks for credits to send, which is congestion",
    "rp_cnp_handled": "was told {} times to send more slowly, which is congestion",
    "np_cnp_sent": "asked senders {} times to send more slowly, which is congestion",
    "hni_rx_paused": "counted {} cycles in which receiving was paused, which is congestion",
    "hni_tx_paused": "counted {} cycles in which sending was paused, which is congestion",
    "port_xmit_discards": "dropped {} packets that it could not send",
    "out_of_sequence": "received {} packets out of their order",
    "packet_seq_err": "was told {} times that a packet is missing",
    "local_ack_timeout_err": "waited {} times in vain for an answer",
    "pct_sct_timeouts": "waited {} times in vain for a response",
    "pct_spt_timeouts": "lost {} packets",
    "pct_retry_srb_requests": "sent {} requests again",
    "hni_llr_tx_replay_event": "sent again {} times over its link",
    "hni_llr_rx_replay_event": "was sent the same again {} times over its link",
    "symbol_error": "counted {} symbol errors on its link",
    "port_rcv_errors": "received {} packets with errors",
    "rx_errors": "received {} packets with errors",
    "tx_errors": "failed to send {} packets",
}
LEAST = 1000
"""A smaller count explains nothing. Of FATAL ones each counts."""
TIMES = 10  # as much as anywhere else
FEWEST = 3  # other runs that were counted: what is usual is not known of fewer
MOST_SAID = 2


def far_counts(late: Sequence[Mapping[str, Any]], usual: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on what was counted in at least half of the late runs, and was far less on all other nodes and runs.

    Counts of runs of other lengths are compared per second.

    Args:
        late: what the cards counted in some runs (`Envelope.network`); those that were not read are empty.
        usual: in other runs of their series, which were not slow.
    """
    late = [run for run in late if run]
    usual = [run for run in usual if run]
    if len(usual) < FEWEST:
        return []
    said = []
    for counter, meaning in MEANINGS.items():
        far = []
        rates = [of["most"][counter][2] / of["elapsed_s"] for of in usual if counter in of["most"]]
        for run in late:
            node, port, count, other = run["most"].get(counter, ("", "", 0, 0))
            others = max(other, round(run["elapsed_s"] * max(rates, default=0.0)))
            if count >= max(1 if counter in FATAL else LEAST, TIMES * others):
                said_of = meaning.format(f"{count:,}")
                beside = f"other nodes, and other runs in {run['elapsed_s']:.0f} s, at most {others:,}"
                far.append((count, f"{node}: {port} {said_of} ({counter}; {beside})"))
        if far and 2 * len(far) >= len(late):
            said.append(max(far)[1])
    return said[:MOST_SAID]
