//! The queueing discipline at the root of a card, as tc-qdisc(8) shows and sets it.

use serde_json::Value;

use super::machine::{Machine, Unread};

/// The mark of a discipline that the kernel gave by itself: it has the handle `0:`.
const BY_ITSELF: &str = "default";

/// Reads the discipline of a card: what is at the root, what its queues have, and whether nobody
/// put it there. Such as `fq`, `fq_codel default`, or `mq/fq default` for a card with several
/// queues.
pub(crate) fn root(machine: &Machine, card: &str) -> Result<String, Unread> {
    let command = ["tc", "-json", "qdisc", "show", "dev", card];
    let text = machine.answer(&command)?;
    let nonsense = || Unread::nonsense(command.join(" "), &text);
    let shown: Vec<Value> = serde_json::from_str(&text).map_err(|_| nonsense())?;
    let root = shown.iter().find(|entry| entry["root"].as_bool() == Some(true));
    let root = root.ok_or_else(nonsense)?;
    let kind = root["kind"].as_str().ok_or_else(nonsense)?;
    let of_queue = shown.iter().find(|entry| entry["parent"].is_string());
    let mut words = match of_queue.and_then(|entry| entry["kind"].as_str()) {
        Some(queue) if kind == "mq" => format!("{kind}/{queue}"),
        _ => kind.to_owned(),
    };
    if root["handle"].as_str() == Some("0:") {
        words = format!("{words} {BY_ITSELF}");
    }
    Ok(words)
}

/// Commands that make the root so. A discipline that the kernel gives by itself comes back when
/// another is taken away. The queues of `mq` get what net.core.default_qdisc says.
pub(crate) fn commands(card: &str, value: &str) -> Vec<Vec<String>> {
    let (kind, by_itself) = match value.split_once(' ') {
        Some((kind, rest)) => (kind, rest == BY_ITSELF),
        None => (value, false),
    };
    let kind = kind.split('/').next().unwrap_or(kind);
    let words = |text: &[&str]| text.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    if by_itself {
        // One with the handle 0: cannot be taken away, so another is put over it before.
        return vec![
            words(&["tc", "qdisc", "replace", "dev", card, "root", "pfifo"]),
            words(&["tc", "qdisc", "del", "dev", card, "root"]),
        ];
    }
    vec![words(&["tc", "qdisc", "replace", "dev", card, "root", kind])]
}

/// Whether this kernel has a discipline; `None` where it does not tell.
pub(crate) fn is_there(machine: &Machine, kind: &str) -> Option<bool> {
    let module = format!("sch_{kind}");
    if machine.exists(&format!("/sys/module/{module}")) {
        return Some(true);
    }
    let release = machine.text("/proc/sys/kernel/osrelease").ok()?;
    let listed = ["modules.builtin", "modules.dep"].iter().any(|list| {
        let list = machine.text(&format!("/lib/modules/{release}/{list}")).unwrap_or_default();
        list.contains(&format!("/{module}.ko"))
    });
    let symbols = machine.text("/proc/kallsyms").unwrap_or_default();
    if listed || symbols.lines().any(|line| line.ends_with(&format!(" {kind}_qdisc_ops"))) {
        return Some(true);
    }
    let option = format!("CONFIG_NET_SCH_{}=", kind.to_uppercase());
    let config = machine.answer(&["gzip", "-dc", "/proc/config.gz"]).unwrap_or_default();
    if config.lines().any(|line| line.starts_with(&option)) {
        return Some(true);
    }
    let is_told = machine.exists(&format!("/lib/modules/{release}"));
    (is_told || !symbols.is_empty() || !config.is_empty()).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(shown: &str) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        let answers = root.path().join(super::super::machine::STORED_ANSWERS);
        std::fs::create_dir(&answers).unwrap();
        std::fs::write(answers.join("tc -json qdisc show dev eth0"), shown).unwrap();
        let machine = Machine::below(root.path());
        (root, machine)
    }

    #[test]
    fn the_root_is_named_with_its_queues_and_by_whom() {
        let cases = [
            (r#"[{"kind":"fq","handle":"8001:","root":true}]"#, "fq"),
            (r#"[{"kind":"noqueue","handle":"0:","root":true}]"#, "noqueue default"),
            (
                r#"[{"kind":"mq","handle":"0:","root":true},
                    {"kind":"fq_codel","handle":"0:","parent":":1"}]"#,
                "mq/fq_codel default",
            ),
        ];
        for (shown, expected) in cases {
            assert_eq!(root(&machine(shown).1, "eth0").as_deref(), Ok(expected));
        }
        for nonsense in ["", "[]", "{}", "[1,2]", r#"[{"root":true}]"#] {
            let (_root, machine) = machine(nonsense);
            assert!(root(&machine, "eth0").is_err(), "{nonsense}");
        }
    }

    #[test]
    fn what_the_kernel_gave_by_itself_comes_back_when_the_other_is_taken_away() {
        let lines =
            |value| commands("eth0", value).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
        assert_eq!(lines("fq"), ["tc qdisc replace dev eth0 root fq"]);
        assert_eq!(lines("mq/fq"), ["tc qdisc replace dev eth0 root mq"]);
        let back = lines("fq_codel default");
        assert_eq!(back.last().map(String::as_str), Some("tc qdisc del dev eth0 root"));
    }
}
