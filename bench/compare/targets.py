"""What haul promises beside its peers, each promise computed from the medians of one session.

Speeds are those of whole processes' lives on both sides of a ratio; iperf3's alone is by its own
clock. Where "the best peer's CPU seconds" leaves room, both readings stand there: those of the
fastest peer, and, stricter, those of the one that needs the fewest.
"""

import statistics
from dataclasses import dataclass
from typing import Optional

from compare.networks import SHORT_PATH
from compare.settings import OWN
from movers.mover import Role, Scenario

WAYS = ("push", "pull")
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
    network: str = ""  # The congestion control of the rows that are compared.

    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        met = self.value >= self.limit if self.at_least else self.value <= self.limit
        return "met" if met else "missed"

    def as_dict(self) -> dict:
        return {
            "text": self.text,
            "network": self.network,
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


def targets(session, file_system="disk") -> list:
    """All promises: those of each network, then those that no network touches."""
    found = []
    for network in session.networks:
        rows = Rows(session.of(network))
        mine = _discard(rows, network) + _disk(rows, file_system) + _cold(rows, file_system)
        mine += _tree(rows, session.options.files)
        if network is session.networks[0]:
            mine += _other_settings(session, network)
        for target in mine:
            target.network = network.title()
            if network.congestion not in SHORT_PATH:
                target.network += "; haul chooses its own"
        found += mine
    return found + _beyond(Rows(session.of(session.networks[0]))) + [_memory(session.results)]


class Rows:
    """The rows of a network's tables."""

    def __init__(self, results):
        self.results = results
        self.by_name = {result.row.name: result for result in results}

    def get(self, name):
        return self.by_name.get(name)

    def best_peer(self, scenario):
        return best_peer(self.results, scenario)

    def thriftiest_peer(self, scenario):
        return min(_peers(self.results, scenario), key=cpu, default=None)

    def best_pair(self, scenario):
        floors = [
            result
            for result in self.results
            if result.row.role is Role.FLOOR and result.row.scenario is scenario and speed(result)
        ]
        return max(floors, key=speed, default=None)

    def iperf3(self, name):
        """With the congestion control that haul chooses: `iperf3`, or `iperf3-skip`."""
        same = (self.get(f"{name}-{congestion}") for congestion in SHORT_PATH)
        return next(filter(None, same), self.get(name))


def _discard(rows, network) -> list:
    """`2.3 x as the system is set, 1.5 x with cubic for all`: both, where the system has cubic."""
    best, bare = rows.best_peer(Scenario.DISCARD), rows.get("bare-sendfile")
    limits = []
    if network.descriptor is None:
        limits.append(("as the system is set", 2.3))
    if network.descriptor is not None or network.congestion in SHORT_PATH:
        limits.append((f"{network.congestion} for all", 1.5))
    found = []
    for way in WAYS:
        ours = rows.get(f"haul-{way}-clear-none-discard")
        start = f"warm -> null:, {way}, clear without digest"
        found.append(_faster(f"{start} / bare sendfile", ours, bare, 0.92))
        for set_so, limit in limits:
            found.append(_faster(f"{start} / best mover, {set_so}", ours, best, limit))
        skips = rows.iperf3("iperf3-skip")
        text = f"{start} / iperf3 --skip-rx-copy, the same control"
        found.append(_faster(text, ours, skips, 0.85))
        # What the others do with the bytes, and so the same work.
        copies = rows.get(f"haul-{way}-clear-none-copy-discard")
        start += ", receiver copies"
        for set_so, limit in limits:
            found.append(_faster(f"{start} / best mover, {set_so}", copies, best, limit))
        iperf3 = rows.iperf3("iperf3")
        found.append(_faster(f"{start} / iperf3 -l 1M, the same control", copies, iperf3, 0.85))
    return found


def _other_settings(session, network) -> list:
    """The promises of large files on other file systems, and from memory as it comes."""
    found = []
    for setting in session.settings:
        if setting.key == OWN:
            continue
        rows, shown = Rows(session.of(network, setting.key)), setting.file_system
        if not setting.touched:
            shown += " from memory as it comes,"
        if Scenario.DISK in setting.scenarios:
            found += _disk(rows, shown)
        if Scenario.COLD in setting.scenarios:
            found += _cold(rows, shown)
    return [target for target in found if target.value is not None]


def _disk(rows, file_system) -> list:
    best, pair = rows.best_peer(Scenario.DISK), rows.best_pair(Scenario.DISK)
    thrifty = rows.thriftiest_peer(Scenario.DISK)
    found = []
    for way in WAYS:
        safe = rows.get(f"haul-{way}-safe-disk")
        start = f"warm -> {file_system} durable, {way} safe"
        found += [
            _faster(f"{start} / best peer", safe, best, 3.0),
            _faster(f"{start} / cp && sync", safe, rows.get("cp-disk"), 1.5),
            _faster(f"{start} / best bare pair", safe, pair, 0.85),
            _thriftier(f"{start}, CPU s per GB / best peer's", safe, best, 0.55),
            _thriftier(
                f"{start}, CPU s per GB / thriftiest peer's (stricter)", safe, thrifty, 0.55
            ),
        ]
    clear = rows.get("haul-push-clear-disk")
    start = f"warm -> {file_system} durable, push clear"
    found += [
        _thriftier(f"{start}, CPU s per GB / best peer's", clear, best, 0.4),
        _thriftier(f"{start}, CPU s per GB / thriftiest peer's (stricter)", clear, thrifty, 0.4),
    ]
    return found + _cost_of_safe(rows, "warm", Scenario.DISK, file_system)


def _cold(rows, file_system) -> list:
    best = rows.best_peer(Scenario.COLD)
    found = [
        _faster(
            f"cold -> {file_system} durable, {way} safe / best peer",
            rows.get(f"haul-{way}-safe-cold"),
            best,
            1.3,
        )
        for way in WAYS
    ]
    return found + _cost_of_safe(rows, "cold", Scenario.COLD, file_system)


def _cost_of_safe(rows, source, scenario, file_system) -> list:
    """`safe` costs at most 15 % of throughput where a disk is the target."""
    start = f"{source} -> {file_system} durable, push safe"
    safe = rows.get(f"haul-push-safe-{scenario.value}")
    others = (("clear with digest", "clear"), ("clear without digest", "clear-none"))
    return [
        _faster(f"{start} / {words}", safe, rows.get(f"haul-push-{name}-{scenario.value}"), 0.85)
        for words, name in others
    ]


def _tree(rows, files) -> list:
    best = rows.best_peer(Scenario.TREE)
    start = f"{files:,} files of 16 KiB"
    return [
        _faster(f"{start}, {way} safe / best peer", rows.get(f"haul-{way}-safe-tree"), best, 2.5)
        for way in WAYS
    ]


def _beyond(rows) -> list:
    """The same rate as a file that memory holds, within 10 %, and the cache as it was."""
    found = []
    for source, words in (("zero", "zeros"), ("file", "a cold file")):
        large, base = rows.get(f"beyond-large-{source}"), rows.get(f"beyond-base-{source}")
        text = f"larger than memory, push of {words} / a file that memory holds"
        found.append(_faster(text, large, base, 0.9))
        resident = median_of(large, lambda sample: sample.report["witness_resident"])
        text = f"larger than memory, push of {words}: of another program's 256 MiB still cached"
        found.append(Target(text, resident, 0.95, True, ""))
    return found


def _faster(text, ours, theirs, limit) -> Target:
    return _ratio(text, ours, theirs, limit, speed, lambda sample: sample.gb_per_s(), True)


def _thriftier(text, ours, theirs, limit) -> Target:
    return _ratio(text, ours, theirs, limit, cpu, lambda sample: sample.cpu_s_per_gb(), False)


def _ratio(text, ours, theirs, limit, median, number, at_least) -> Target:
    upper, lower = median(ours), median(theirs)
    value = upper / lower if upper is not None and lower else None
    pairs = ()
    if value is not None:
        theirs_by_round = {sample.round: number(sample) for sample in theirs.samples}
        both = ((number(sample), theirs_by_round.get(sample.round)) for sample in ours.samples)
        pairs = [our / their for our, their in both if their]
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
