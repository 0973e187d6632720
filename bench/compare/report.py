"""The report, as Markdown for people and as one JSON object for programs."""

import os

from compare.networks import SHORT_PATH
from compare.settings import OWN
from compare.sizes import MIB, shown_size
from compare.targets import best_peer, cpu, own_clock_speed, speed, targets
from movers.mover import Role, Scenario

TITLES = {
    Scenario.DISCARD: "A: warm file -> thrown away",
    Scenario.DISK: "B: warm file -> new file on the same file system, durable at the end",
    Scenario.TREE: "C: warm tree of small files -> new files, durable at the end",
    Scenario.COLD: "D: cold file -> new file on the same file system, durable at the end",
    Scenario.BEYOND: "E: larger than memory -> new file, durable at the end, haul alone",
}


def as_dict(session, facts, command, complete) -> dict:
    return {
        "command": command,
        "complete": complete,
        "size_bytes": session.options.size_bytes,
        "rounds": session.options.rounds,
        "rounds_done": session.rounds_done,
        "host": facts,
        "skipped": session.skipped,
        "rows": [_row_dict(result) for result in session.results],
        "settings": {setting.key: setting.title() for setting in session.settings},
        "targets": [target.as_dict() for target in targets(session, facts["file_system"])],
    }


def _row_dict(result) -> dict:
    row = result.row
    return {
        "name": row.name,
        "scenario": row.scenario.value,
        "congestion": result.congestion,
        "setting": result.setting.key,
        "file_system": result.setting.file_system,
        "memory": "touched" if result.setting.touched else "as it comes",
        "receiver": row.receiver if row.scenario is Scenario.DISCARD else "writes",
        "network": "every" if result.shared else result.network,
        "role": row.role.name.lower(),
        "label": row.label,
        "version": result.version,
        "checks": row.checks,
        "command": result.command_shown,
        "note": row.note,
        "failure": result.failure,
        "absent": result.absent,
        "resting": result.resting,
        "equality_checked": result.equality_checked,
        "gb_per_s": speed(result),
        "cpu_s_per_gb": cpu(result),
        "samples": [sample.as_dict() for sample in result.samples],
    }


def as_markdown(session, facts, command, complete) -> str:
    options = session.options
    parts = [
        "# haul and its peers",
        f"{facts['date']}. **Loopback**: both ends of every row run on this one host, so the CPU"
        " is shared by both and no number here is a network's."
        f" One file of {shown_size(options.size_bytes)} random bytes;"
        f" a tree of {options.files} files of 16 KiB."
        f" {session.rounds_done} of {options.rounds} rounds, the rows interleaved."
        " GB are 10^9 bytes. Speeds are median (lowest .. highest); every round of every row is"
        " below its table.",
        _networks(session, facts),
    ]
    if not complete:
        parts.append("**This run was broken off: the numbers are incomplete.**")
    elif session.rounds_done < options.rounds:
        parts.append(
            f"**Only {session.rounds_done} rounds**: another one would not have ended within"
            f" {options.minutes} minutes (--minutes)."
        )
    for scenario in Scenario:
        parts.append(f"## {TITLES[scenario]}")
        parts += _tables(session, scenario)
    if session.skipped:
        skipped = [f"- {name}: skipped: {why}" for name, why in session.skipped.items()]
        parts += ["## Not here", "\n".join(skipped)]
    parts += ["## Host", _host_list(facts), "## Commands", f"    {command}", _commands(session)]
    parts += [
        "## Targets",
        _targets_table(targets(session, facts["file_system"])),
        "Ratios are of the medians; in brackets the lowest and highest of the rounds, compared"
        " within each round. After every peer and cp, `sync FILE DIRECTORY` makes it durable,"
        " in their time and CPU seconds; haul syncs by itself, and the bare engines call"
        " fdatasync(2). Every row is timed from the start to the end of its process; iperf3 alone"
        " by its own clock, without the set-up of its test. The best peer is the fastest mover of"
        " the same table; bare engines, iperf3 and cp are never it.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _networks(session, facts) -> str:
    first, *rest = session.networks
    if not rest:
        words = f"Congestion control: {first.title()}."
        if first.congestion not in SHORT_PATH:
            words += (
                " haul chooses its own, so its rows are in tables of their own: no table compares"
                f" two. One for all: skipped: {facts['networks_missing']}."
            )
        return words
    others = " and ".join(network.title() for network in rest)
    return (
        f"The first table of each part has one congestion control for all: {first.title()}, in a"
        " network namespace, in which servers and clients run; nothing of the system was changed."
        f" Below it is {others}. A program that chooses its own there, as haul does, stands in a"
        " table of its own: no table compares two. Bare engines, cp and files larger than memory"
        " run once."
    )


def _tables(session, scenario) -> list:
    """For each network, setting and congestion control one, and the rounds below each."""
    parts = []
    for network in session.networks:
        for setting in session.settings:
            rows = [
                result
                for result in session.results
                if result.row.scenario is scenario
                and result.network == network.key
                and result.setting.key == setting.key
            ]
            for congestion, group in by_congestion(rows).items():
                title = network.title()
                if congestion != network.congestion:
                    title = f"{congestion}, which they choose themselves; {title}"
                if scenario is not Scenario.DISCARD:
                    title += f"; {setting.title()}"
                parts += [f"### {title}", _table(group, scenario), rounds_table(group)]
    return parts or ["No row could be run."]


def by_congestion(results) -> dict:
    """The rows of each congestion control. A row without a connection is with the first ones."""
    names = list(dict.fromkeys(result.congestion for result in results if result.congestion))
    first = names[0] if names else ""
    return {
        name: [result for result in results if (result.congestion or first) == name]
        for name in names or ([""] if results else [])
    }


def _table(results, scenario) -> str:
    """The medians of rows of one congestion control and one file system."""
    for what in ("congestion", "setting"):
        found = {getattr(result, what) for result in results} - {""}
        if len(found) > 1:
            raise ValueError(f"a table of two: {what} is {found}")
    best = best_peer(results, scenario)
    where = "receiver" if scenario is Scenario.DISCARD else "file system"
    lines = [
        f"| mover | version | checked on the way | {where} | GB/s |"
        " CPU s/GB: client + server | peak MiB: client / server | x best peer |",
        "|---|---|---|---|---|---|---|---|",
    ]
    notes = []
    for result in results:
        mark = ""
        note = _note(result)
        if note:
            if note not in notes:
                notes.append(note)
            mark = f" [{notes.index(note) + 1}]"
        row = result.row
        cells = [row.label + mark, result.version, row.checks]
        discards = scenario is Scenario.DISCARD
        cells.append(row.receiver if discards else result.setting.file_system)
        cells += _number_cells(result, best)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    listed = "\n".join(f"- [{number}] {note}" for number, note in enumerate(notes, 1))
    return "\n".join(lines) + (f"\n\n{listed}" if listed else "")


def rounds_table(results) -> str:
    """Every run of every row, GB/s, as it was measured: a row that rested has no number there."""
    last = max((sample.round for result in results for sample in result.samples), default=0)
    if not last:
        return ""
    names = [f"round {number}" for number in range(1, last + 1)]
    lines = [f"| GB/s of each round | {' | '.join(names)} |", "|---|" + "---|" * last]
    for result in results:
        rates = {sample.round: f"{sample.gb_per_s():.2f}" for sample in result.samples}
        cells = [rates.get(number, "-") for number in range(1, last + 1)]
        lines.append(f"| {result.row.label.replace('|', '/')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _number_cells(result, best) -> list:
    if result.failure or not result.samples:
        return ["failed" if result.failure else "not run", "", "", ""]
    rates = [sample.gb_per_s() for sample in result.samples]
    middle = sorted(result.samples, key=lambda sample: sample.cpu_s_per_gb())
    middle = middle[(len(middle) - 1) // 2]  # The two sides of one run, so that they add up.
    client, server = (
        getattr(middle.measurement, name) / (middle.bytes / 1e9)
        for name in ("client_cpu_s", "server_cpu_s")
    )
    peaks = [
        max(getattr(sample.measurement, name) for sample in result.samples) / MIB
        for name in ("client_memory_bytes", "server_memory_bytes")
    ]
    has_server = result.mover.server is not None or peaks[1] > 0
    best_speed = speed(best) if best else None
    return [
        f"{speed(result):.2f} ({min(rates):.2f} .. {max(rates):.2f})",
        f"{client:.2f} + {server:.2f} = {cpu(result):.2f}" if has_server else f"{cpu(result):.2f}",
        f"{peaks[0]:.0f} / {peaks[1]:.0f}" if has_server else f"{peaks[0]:.0f}",
        f"{speed(result) / best_speed:.2f}" + (" (best)" if result is best else "")
        if best_speed
        else "-",
    ]


def _note(result) -> str:
    parts = []
    if result.failure:
        parts.append("FAILED: " + " ".join(result.failure.split()))
    if result.absent:
        parts.append("skipped: " + " ".join(result.absent.split()))
    if result.resting:
        parts.append(f"runs: {len(result.samples)}; {result.resting}")
    if result.row.role in (Role.FLOOR, Role.REFERENCE, Role.LOCAL):
        parts.append(result.row.role.value)
    if result.row.note:
        parts.append(result.row.note)
    if result.row.role is Role.HAUL and result.samples:
        report = result.samples[-1].report
        engines = [str(report.get(name, "?")) for name in ("send_engine", "receive_engine")]
        parts.append(f"engines {' -> '.join(engines)}")
        if "witness_resident" in report:
            lowest = min(sample.report["witness_resident"] for sample in result.samples)
            parts.append(f"of another program's file {lowest:.0%} still cached")
        meant = result.row.scenario is Scenario.DISCARD and result.row.receiver == "copies"
        if report.get("copied_bytes") and not meant:
            parts.append(f"the kernel copied {report['copied_bytes']} bytes in spite of zero-copy")
    if result.setting.key != OWN and result.samples:
        parts.append(f"runs: {len(result.samples)}")
    own = own_clock_speed(result)
    if own and not result.row.own_clock:
        parts.append(f"{own:.2f} GB/s by its own clock")
    return "; ".join(parts)


def _targets_table(found) -> str:
    lines = [
        "| target | congestion control | measured | wanted | verdict | compared with |",
        "|---|---|---|---|---|---|",
    ]
    for target in found:
        measured = "-"
        if target.value is not None:
            measured = f"{target.value:.2f} {target.unit}".strip()
            if target.per_round:
                measured += " ({:.2f} .. {:.2f})".format(*target.per_round)
        sign = ">=" if target.at_least else "<="
        wanted = f"{sign} {target.limit:g} {target.unit}".strip()
        cells = [target.text, target.network, measured, wanted, target.verdict(), target.against]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _host_list(facts) -> str:
    machine = " (virtual machine)" if facts["virtual_machine"] else ""
    lines = [
        f"wire: {facts['wire']}, MTU {facts['lo_mtu_bytes']}",
        f"CPU: {facts['cores']} cores, {facts['cpu']}{machine}, {facts['architecture']}",
        f"memory: {facts['memory_bytes'] / (1 << 30):.1f} GiB",
        f"kernel: Linux {facts['kernel']}; {facts['distribution']}",
        f"file system: {facts['file_system']} on {facts['device']} ({facts['mount_options']})",
        f"congestion control: {facts['congestion_default']} by default;"
        f" {facts['congestion_available']} available; haul leaves cubic and reno as they are, and"
        " on a short path chooses cubic instead of another, or reno where cubic may not be chosen",
        f"socket buffers: tcp_rmem {facts['tcp_rmem']}, tcp_wmem {facts['tcp_wmem']}",
        f"load average: {facts['load_before']} before, {facts['load_after']} after, the rows' own"
        f" load included; anything else that ran here is in the numbers",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _commands(session) -> str:
    lines = ["Each row's client, in its last round (/WORK is a temporary directory):", ""]
    for result in session.results:
        if result.command_shown and result.network == session.networks[0].key:
            env = " ".join(f"{name}={value}" for name, value in result.row.env.items())
            shown = " ".join(filter(None, (env, result.command_shown)))
            lines.append(f"- {result.row.name}: `{shown.replace(os.getcwd() + '/', '')}`")
    return "\n".join(lines)
