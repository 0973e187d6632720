//! Files that set at the next boot something else than the checks want.

use std::collections::BTreeMap;

use super::{CHECKS, Check, Group, look as look_by};
use crate::tune::{
    Finding, Goal, Machine, State, Weight,
    setting::{quoted, same},
};

/// Directories by rank: a file of an earlier one hides one of the same name in a later
/// (sysctl.d(5)).
const DIRECTORIES: [&str; 5] = [
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
];
/// The file that is read after all others (sysctl(8), --system).
const LAST: &str = "/etc/sysctl.conf";
/// The file in which haul keeps settings over a boot.
const OURS: &str = "90-haul-dtn.conf";

pub const CHECK: Check = Check {
    name: "sysctl-conflicts",
    group: Group::System,
    summary: "no file sets back at the next boot what is right now (sysctl.d)",
    why: "Settings are read from many files, in the order of their names, and the last one wins. \
        A value that was set by hand is gone after a boot where a file says otherwise, and what \
        haul writes to 90-haul-dtn.conf is overridden by files with later names and by \
        /etc/sysctl.conf.",
    source: "sysctl.d(5), sysctl(8)",
    look,
};

/// A setting that a file makes.
struct Line {
    value: String,
    file: String,
    order: String,
}

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "files of sysctl";
    let files = files(machine);
    if files.is_empty() {
        return vec![Finding::absent(SUBJECT, "this host has none")];
    }
    let lines = lines(machine, &files);
    // Cards have none of these settings, and their programs need not be asked twice.
    let others = CHECKS.iter().filter(|check| {
        check.name != CHECK.name && check.group != Group::NetworkCard
    });
    let findings: Vec<Finding> = others.flat_map(|check| look_by(check, machine, goal)).collect();
    let conflicts: Vec<Finding> =
        findings.iter().flat_map(|finding| conflicts(machine, &lines, finding)).collect();
    if conflicts.is_empty() {
        let found = format!("{} files, none against what is wanted", files.len());
        return vec![Finding::good(Weight::Low, SUBJECT, &found)];
    }
    conflicts
}

/// Conflicts with one finding of another check: a right value must stay so, and a wrong one must
/// not come back over what haul keeps.
fn conflicts(
    machine: &Machine,
    lines: &BTreeMap<String, Line>,
    finding: &Finding,
) -> Vec<Finding> {
    if finding.state == State::Good {
        let name = &finding.subject;
        let Ok(now) = machine.sysctl(name) else { return Vec::new() };
        let note = "now it is as wanted; the next boot undoes that";
        if let Some(twin) = twin(name).filter(|_| now != "0")
            && let Some(line) = lines.get(&twin)
            && lines.get(name).is_none_or(|own| own.order < line.order)
        {
            return vec![clearing(&twin, line, name, note)];
        }
        let Some(line) = lines.get(name) else { return Vec::new() };
        if is_no_less(&line.value, &now) {
            return Vec::new();
        }
        return vec![conflict(name, line, &now, note)];
    }
    let wanted =
        finding.changes.iter().filter_map(|change| change.setting.sysctl_of(&change.value));
    let wanted = wanted.filter_map(|(name, wanted)| {
        let is_later = |line: &Line| line.order.as_str() > OURS;
        let twin = twin(&name).and_then(|twin| Some((lines.get(&twin)?, twin)));
        let note = format!("it is read after {OURS}, so it would undo what haul keeps there");
        match (lines.get(&name), twin) {
            (Some(line), _) if is_later(line) && !same(&line.value, &wanted) => {
                Some(conflict(&name, line, &wanted, &note))
            }
            (_, Some((line, twin))) if is_later(line) => Some(clearing(&twin, line, &name, &note)),
            _ => None,
        }
    });
    wanted.collect()
}

fn conflict(name: &str, line: &Line, wanted: &str, note: &str) -> Finding {
    let found = format!("{} sets {}", line.file, line.value);
    let finding = Finding::improve(Weight::Medium, name, &found, wanted).note(note);
    // What a package or a program wrote is overridden rather than changed.
    if line.file.starts_with("/etc/") {
        let file = quoted(&line.file);
        return finding.command(format!("sed -i 's|^[ -]*{name} *=|# &|' {file}"));
    }
    let set = quoted(&format!("{name} = {wanted}"));
    finding.command(format!("echo {set} >> /etc/sysctl.d/99-zz-local.conf"))
}

/// The other name of a limit: setting one clears the other
/// (Documentation/admin-guide/sysctl/vm.rst).
fn twin(name: &str) -> Option<String> {
    let of = |from: &str, to: &str| {
        let stem = name.strip_suffix(from)?;
        matches!(stem, "vm.dirty" | "vm.dirty_background").then(|| format!("{stem}{to}"))
    };
    of("_bytes", "_ratio").or_else(|| of("_ratio", "_bytes"))
}

/// The finding for a line that clears the other name of its limit.
fn clearing(twin: &str, line: &Line, name: &str, note: &str) -> Finding {
    let finding = conflict(twin, line, "", note);
    let command = match line.file.starts_with("/etc/") {
        true => finding.command.clone(),
        // To hide the file of a package, one of its name in /etc is enough (sysctl.d(5)).
        false => {
            let (from, to) = (quoted(&line.file), quoted(&format!("/etc/sysctl.d/{}", line.order)));
            format!("grep -v {twin} {from} > {to}")
        }
    };
    let found = format!("{} sets {}, which clears {name}", line.file, line.value);
    Finding::improve(Weight::Medium, twin, &found, "not set").note(note).command(command)
}

/// Whether a value equals the present one, or is larger in each of its numbers.
fn is_no_less(value: &str, now: &str) -> bool {
    let numbers = |text: &str| -> Option<Vec<u64>> {
        text.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    match (numbers(value), numbers(now)) {
        (Some(value), Some(now)) => {
            value.len() == now.len() && value.iter().zip(&now).all(|(value, now)| value >= now)
        }
        _ => same(value, now),
    }
}

/// Names and paths of the files in the order in which they are read: by name, whatever their
/// directory is.
fn files(machine: &Machine) -> Vec<(String, String)> {
    let mut files = BTreeMap::new();
    for directory in DIRECTORIES {
        for name in machine.names(directory) {
            if name.ends_with(".conf") {
                let path = format!("{directory}/{name}");
                files.entry(name).or_insert(path);
            }
        }
    }
    let mut files: Vec<(String, String)> = files.into_iter().collect();
    if machine.exists(LAST) {
        // Sorts after every name of a file.
        files.push(("\u{ffff}".to_owned(), LAST.to_owned()));
    }
    files
}

/// The last line that sets each name. Files that cannot be read set nothing that is known.
fn lines(machine: &Machine, files: &[(String, String)]) -> BTreeMap<String, Line> {
    let mut lines = BTreeMap::new();
    for (order, file) in files {
        for line in machine.text(file).unwrap_or_default().lines() {
            let line = line.trim();
            if line.starts_with(['#', ';']) {
                continue;
            }
            let Some((name, value)) = line.split_once('=') else { continue };
            let (name, value) = (dotted(name.trim()), value.trim().to_owned());
            lines.insert(name, Line { value, file: file.clone(), order: order.clone() });
        }
    }
    lines
}

/// The name with dots: files may write it with slashes, as `net/core/rmem_max`, and `-` before it
/// lets a failure pass.
fn dotted(name: &str) -> String {
    let name = name.trim_start_matches('-').trim();
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => name.replace('/', "."),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::stored;

    fn found(files: &[(&str, &str)]) -> Vec<Finding> {
        let host = stored::host(&[
            ("proc/sys/net/core/rmem_max", "67108864\n"),
            ("proc/sys/net/core/wmem_max", "212992\n"),
            ("proc/sys/net/ipv4/tcp_sack", "1\n"),
        ]);
        let host = files.iter().fold(host, |host, (path, text)| host.file(path, text));
        look(&host.machine(), &host.goal_of(10))
    }

    #[test]
    fn what_is_right_now_and_wrong_at_the_next_boot_is_told() {
        let findings = found(&[("etc/sysctl.d/50-old.conf", "net.core.rmem_max = 1048576\n")]);
        assert_eq!(findings[0].subject, "net.core.rmem_max");
        assert_eq!(findings[0].found, "/etc/sysctl.d/50-old.conf sets 1048576");
        assert_eq!(findings[0].wanted, "67108864");
        let larger = found(&[("etc/sysctl.d/50-old.conf", "net/core/rmem_max=134217728\n")]);
        assert_eq!(larger[0].state, State::Good);
    }

    #[test]
    fn the_last_file_wins_and_one_in_etc_hides_its_namesake() {
        let hidden = found(&[
            ("usr/lib/sysctl.d/50-a.conf", "net.ipv4.tcp_sack = 0\n"),
            ("etc/sysctl.d/50-a.conf", "# net.ipv4.tcp_sack = 0\n"),
        ]);
        assert_eq!(hidden[0].state, State::Good);
        let overridden = found(&[
            ("etc/sysctl.d/50-a.conf", "net.ipv4.tcp_sack = 0\n"),
            ("usr/lib/sysctl.d/60-a.conf", "-net.ipv4.tcp_sack=1\n"),
        ]);
        assert_eq!(overridden[0].state, State::Good);
        let last = found(&[
            ("usr/lib/sysctl.d/99-z.conf", "net.ipv4.tcp_sack = 1\n"),
            ("etc/sysctl.conf", "net.ipv4.tcp_sack = 0\n"),
        ]);
        assert_eq!(last[0].found, "/etc/sysctl.conf sets 0");
        assert_eq!(last[0].command, "sed -i 's|^[ -]*net.ipv4.tcp_sack *=|# &|' /etc/sysctl.conf");
    }

    #[test]
    fn a_file_that_is_read_after_ours_is_told_and_one_before_is_not() {
        let text = "net.core.wmem_max = 212992\n";
        let before = found(&[("etc/sysctl.d/50-a.conf", text)]);
        assert_eq!(before[0].state, State::Good);
        let after = found(&[("run/sysctl.d/99-a.conf", text)]);
        assert_eq!(after[0].wanted, "67108864");
        assert!(after[0].command.starts_with("echo 'net.core.wmem_max = 67108864' >> /etc/"));
    }

    #[test]
    fn a_share_of_the_memory_clears_the_bytes_that_are_wanted() {
        let host = |bytes: &str, ratio: &str, path: &str, text: &str| {
            let host = stored::host(&[
                ("proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 33554432 kB\n"),
                ("proc/sys/vm/dirty_bytes", bytes),
                ("proc/sys/vm/dirty_ratio", ratio),
            ]);
            let host = host.file(path, text);
            look(&host.machine(), &host.goal_of(10)).remove(0)
        };
        let (path, text) = ("etc/sysctl.d/50-a.conf", "vm.dirty_ratio = 40\n");
        let now_right = host("2499805184\n", "0\n", path, text);
        assert_eq!(
            now_right.found,
            "/etc/sysctl.d/50-a.conf sets 40, which clears vm.dirty_bytes"
        );
        assert!(now_right.command.starts_with("sed -i 's|^[ -]*vm.dirty_ratio *="));
        // What haul would write is read later than one file, and earlier than the other.
        assert_eq!(host("0\n", "90\n", path, text).state, State::Good);
        let later = host("0\n", "90\n", "usr/lib/sysctl.d/99-a.conf", text);
        assert_eq!(later.subject, "vm.dirty_ratio");
        assert_eq!(
            later.command,
            "grep -v vm.dirty_ratio /usr/lib/sysctl.d/99-a.conf > /etc/sysctl.d/99-a.conf"
        );
        // Bytes that a later line sets again stand.
        let both = "vm.dirty_ratio = 40\nvm.dirty_bytes = 2499805184\n";
        let own = host("2499805184\n", "0\n", path, both);
        assert_eq!(own.state, State::Good, "{own:?}");
    }

    #[test]
    fn a_host_without_files_has_no_conflicts() {
        assert_eq!(found(&[])[0].state, State::Absent);
        assert_eq!(found(&[("etc/sysctl.conf", "odd\n=\n;x=1\n")])[0].state, State::Good);
    }
}
