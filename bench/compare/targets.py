"""The promises of haul's "Fast" text, each computed from the medians of one session.

Where the text leaves room, the stricter reading stands beside the plain one:
- "the best peer's CPU seconds" are those of the fastest peer; stricter: of the thriftiest one.
- "with its digest at least 0.6 of that": of the two rates wanted without a digest, 0.85 of the bare
  engine and twice the best mover; stricter: of the bare engine itself.
- a ratio to the bare engine is of the lives of both processes; stricter: the bare engine by its own
  clock, which begins when its connection stands, and haul by its whole life, hello and all.
"""

import statistics
from dataclasses import dataclass
from typing import Optional

from movers.mover import Role, Scenario

MIB = 1 << 20
MEMORY_BYTES_MAX = 64 * MIB


@dataclass
class Target:
    """One promise. `value` is None when a row it needs has no number."""

    text: str
    value: Optional[float]
    limit: float
    at_least: bool
    unit: str = "x"
    against: str = ""
    per_round: tuple = ()

    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        met = self.value >= self.limit if self.at_least else self.value <= self.limit
        return "met" if met else "missed"

    def as_dict(self) -> dict:
        return {
            "text": self.text,
            "value": self.value,
            "limit": self.limit,
            "at_least": self.at_least,
            "unit": self.unit,
            "against": self.against,
            "per_round_min_max": list(self.per_round),
            "verdict": self.verdict(),
        }


def median_of(result, number) -> Optional[float]:
    """The median over a row's runs; None when it has none or one failed."""
    if result is None or result.failure or not result.samples:
        return None
    return statistics.median(number(sample) for sample in result.samples)


def speed(result) -> Optional[float]:
    return median_of(result, lambda sample: sample.gb_per_s())


def cpu(result) -> Optional[float]:
    return median_of(result, lambda sample: sample.cpu_s_per_gb())


def own_clock_speed(result) -> Optional[float]:
    """GB/s by the seconds that the program itself reports; None where it reports none."""

    def rate(sample) -> float:
        seconds = sample.report.get("seconds")
        is_number = isinstance(seconds, (int, float)) and seconds > 0
        return sample.bytes / seconds / 1e9 if is_number else 0.0

    return median_of(result, rate) or None


def best_peer(results, scenario):
    """The fastest file mover of a table that is not haul."""
    peers = _peers(results, scenario)
    return max(peers, key=speed) if peers else None


def _peers(results, scenario) -> list:
    return [
        result
        for result in results
        if result.row.scenario is scenario and result.row.role is Role.PEER and speed(result)
    ]


def targets(results) -> list:
    by_name = {result.row.name: result for result in results}
    discard, disk, tree = (best_peer(results, scenario) for scenario in Scenario)
    thrifty = min(_peers(results, Scenario.DISK), key=cpu, default=None)
    bare, cp = by_name.get("bare-sendfile"), by_name.get("cp-disk")
    found = []
    for way in ("push", "pull"):
        none = by_name.get(f"haul-{way}-clear-none-discard")
        clear = by_name.get(f"haul-{way}-clear-discard")
        start = f"warm -> null:, {way}"
        found += [
            _faster(f"{start}, clear without digest / bare sendfile", none, bare, 0.85),
            _to_own_clock(f"{start}, clear without digest / bare's own clock", none, bare, 0.85),
            _faster(f"{start}, clear without digest / best file mover", none, discard, 2.0),
            _faster(f"{start}, clear with digest / bare sendfile", clear, bare, 0.6 * 0.85),
            _faster(f"{start}, clear with digest / best file mover", clear, discard, 0.6 * 2.0),
            _faster(f"{start}, clear with digest / bare sendfile (stricter)", clear, bare, 0.6),
            _to_own_clock(f"{start}, clear with digest / bare's own clock", clear, bare, 0.6),
        ]
    file_system = "warm -> disk, durable"
    for way in ("push", "pull"):
        safe = by_name.get(f"haul-{way}-safe-disk")
        start = f"{file_system}, {way} safe"
        found += [
            _faster(f"{start} / best peer", safe, disk, 2.5),
            _faster(f"{start} / cp && sync", safe, cp, 1.3),
            _thriftier(f"{start}, CPU s per GB / best peer's", safe, disk, 0.6),
            _thriftier(f"{start}, CPU s per GB / thriftiest peer's (stricter)", safe, thrifty, 0.6),
        ]
    clear = by_name.get("haul-push-clear-disk")
    start = f"{file_system}, push clear"
    found += [
        _thriftier(f"{start}, CPU s per GB / best peer's", clear, disk, 0.4),
        _thriftier(f"{start}, CPU s per GB / thriftiest peer's (stricter)", clear, thrifty, 0.4),
        _memory(results),
    ]
    for way in ("push", "pull"):
        ours = by_name.get(f"haul-{way}-safe-tree")
        found.append(_faster(f"20,000 files of 16 KiB, {way} safe / best peer", ours, tree, 2.0))
    return found


def _faster(text, ours, theirs, limit) -> Target:
    return _ratio(text, ours, theirs, limit, speed, lambda sample: sample.gb_per_s(), True)


def _to_own_clock(text, ours, theirs, limit) -> Target:
    upper, lower = speed(ours), own_clock_speed(theirs)
    value = upper / lower if upper is not None and lower else None
    against = f"{theirs.row.label}, by its own clock" if theirs else ""
    return Target(f"{text} (stricter)", value, limit, True, "x", against)


def _thriftier(text, ours, theirs, limit) -> Target:
    return _ratio(text, ours, theirs, limit, cpu, lambda sample: sample.cpu_s_per_gb(), False)


def _ratio(text, ours, theirs, limit, median, number, at_least) -> Target:
    upper, lower = median(ours), median(theirs)
    value = upper / lower if upper is not None and lower else None
    pairs = ()
    if value is not None:
        both = zip(ours.samples, theirs.samples)
        pairs = [number(our) / number(their) for our, their in both if number(their)]
    against = theirs.row.label if theirs else ""
    return Target(
        text, value, limit, at_least, "x", against, (min(pairs), max(pairs)) if pairs else ()
    )


def _memory(results) -> Target:
    peaks = [
        max(sample.measurement.client_memory_bytes, sample.measurement.server_memory_bytes)
        for result in results
        if result.row.role is Role.HAUL
        for sample in result.samples
    ]
    value = max(peaks) / MIB if peaks else None
    text = "peak memory of either side, all haul rows"
    return Target(text, value, MEMORY_BYTES_MAX / MIB, False, "MiB")
