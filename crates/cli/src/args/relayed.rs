//! Options of a copy between two other machines, on their way to the one that sends.
//!
//! They travel as words, and the machine that sends reads them as those of a push. Each end has the
//! same list of what may travel: nothing among it names a file, a program or a token there.

use super::{proxy::LowProxy, transfer::LowTransfer, usage_problem};
use crate::ssh::sending::{ProxyChoice, PushOptions};
use clap::{ArgMatches, Args, Command, FromArgMatches, Parser, parser::ValueSource};
use haul_transfer::Problem;
use std::ffi::OsString;

/// Options that go to the machine that sends.
const RELAYED: [&str; 38] = [
    "append-only",
    "bind",
    "bwlimit",
    "checksum-compare",
    "delete",
    "digest",
    "dry-run",
    "dscp",
    "exclude",
    "explain",
    "fabric",
    "follow",
    "idle",
    "include",
    "max-age",
    "max-delete",
    "max-size",
    "min-age",
    "min-size",
    "move",
    "on-conflict",
    "preflight",
    "preserve",
    "protection",
    "proxy",
    "receive-engine",
    "recheck",
    "rekey-after",
    "retry-for",
    "scitag",
    "send-engine",
    "span-size",
    "stall-timeout",
    "streams",
    "verify-target",
    "wait",
    "watch",
    "watch-for",
];
/// Options that are for this end of ssh, and for what is shown here.
const FOR_HERE: [&str; 10] = [
    "install-remote",
    "json",
    "port-range",
    "quiet",
    "remote-haul",
    "report",
    "reverse",
    "signal",
    "ssh",
    "through-ssh",
];
/// Options about this machine, such as a file that the one that sends does not have.
const ABOUT_HERE: [&str; 6] = ["files-from", "firefly", "from0", "manifest", "part", "token-file"];
/// Front of the word of a proxy, which has to be one itself: a file of this machine is read here.
const PROXY: &str = "--proxy=";

/// Options as they were given, in their order.
#[derive(Debug, Default)]
pub struct GivenOptions(Vec<(&'static str, String)>);

impl Args for GivenOptions {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for GivenOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Vec::new();
        let known = RELAYED.iter().chain(&FOR_HERE).chain(&ABOUT_HERE);
        for argument in options_of_a_transfer().get_arguments() {
            let (id, Some(long)) = (argument.get_id().as_str(), argument.get_long()) else {
                continue;
            };
            let is_given = matches.value_source(id) == Some(ValueSource::CommandLine);
            let Some(long) = known.clone().find(|name| **name == long).filter(|_| is_given) else {
                continue;
            };
            let places = matches.indices_of(id).unwrap_or_default();
            if argument.get_action().takes_values() {
                let values = matches.get_raw(id).unwrap_or_default();
                let words = values.map(|value| format!("--{long}={}", value.to_string_lossy()));
                given.extend(places.zip(words).map(|(place, word)| (place, (*long, word))));
            } else {
                given.extend(places.take(1).map(|place| (place, (*long, format!("--{long}")))));
            }
        }
        given.sort_by_key(|(place, _)| *place);
        Ok(Self(given.into_iter().map(|(_, word)| word).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn options_of_a_transfer() -> Command {
    LowTransfer::augment_args(Command::new("haul"))
}

/// The words for the machine that sends.
///
/// # Errors
/// If an option was given that is about this machine.
pub fn relayed_words(given: &GivenOptions) -> Result<Vec<String>, Problem> {
    if let Some((name, _)) = given.0.iter().find(|(name, _)| ABOUT_HERE.contains(name)) {
        let needs = "options that both other machines can follow";
        let hint = format!("leave it out, or run `haul push --{name}` on the machine that sends");
        let what = format!("cannot take --{name}");
        return Err(usage_problem(&what, needs, "one that is about this machine", &hint));
    }
    let relayed = given.0.iter().filter(|(name, _)| RELAYED.contains(name));
    let relayed = relayed.map(|(_, word)| match word.strip_prefix(PROXY) {
        Some(proxy) => Ok(format!("{PROXY}{}", LowProxy::for_another(proxy)?)),
        None => Ok(word.clone()),
    });
    relayed.collect()
}

/// Words that came from the near end, as those of a push.
#[derive(Debug, Parser)]
#[command(name = "haul")]
struct LowRelayed {
    #[command(flatten)]
    transfer: LowTransfer,
}

/// Reads words that came from the near end, which may be of another version, or lie. They are those
/// of a push to a machine with these hosts, each of which may be reached without a proxy.
///
/// # Errors
/// If one of them is none that may travel, or they make no sense together.
pub fn read_relayed(
    words: &[String],
    sources: &[OsString],
    hosts: &[String],
) -> Result<PushOptions, Problem> {
    let refused = |found: &str| {
        let needs = "options of a push that this haul has, and that name no file here";
        let hint = "install the same haul on both machines, or leave the option out";
        usage_problem("cannot send as it was asked for", needs, found, hint)
    };
    for word in words {
        let name = word.strip_prefix("--").map(|rest| rest.split('=').next().unwrap_or(rest));
        if !name.is_some_and(|name| !name.is_empty() && RELAYED.contains(&name)) {
            // Its value may be a password.
            let name = word.split('=').next().unwrap_or_default();
            return Err(refused(&format!("{name:?}")));
        }
        if word.strip_prefix(PROXY).is_some_and(|proxy| proxy.starts_with('@')) {
            return Err(refused("--proxy with a file"));
        }
    }
    let words = std::iter::once("haul").chain(words.iter().map(String::as_str));
    let low = LowRelayed::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        refused(text.lines().next().unwrap_or_default().trim_start_matches("error: "))
    })?;
    let mut proxy = ProxyChoice::default();
    for host in hosts {
        match low.transfer.proxy.for_host(host)? {
            Some(found) => proxy.proxy = Some(found),
            None => proxy.without.push(host.clone()),
        }
    }
    // A proxy that the user has named is the way though no host counts: no other one is taken.
    if hosts.is_empty() && low.transfer.proxy.proxy.is_some() {
        proxy.proxy = low.transfer.proxy.for_host("")?;
    }
    low.transfer.check_path(proxy.proxy.is_some())?;
    Ok(PushOptions { options: low.transfer.checked(sources)?, proxy })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn every_option_of_a_transfer_is_known_to_travel_or_not() {
        let lists = [&RELAYED[..], &FOR_HERE, &ABOUT_HERE];
        let command = options_of_a_transfer();
        let longs: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
        for long in &longs {
            let count = lists.iter().filter(|list| list.contains(long)).count();
            assert_eq!(count, 1, "--{long} stands in one list of args/relayed.rs");
        }
        for name in lists.concat() {
            assert!(longs.contains(&name), "--{name} is an option");
        }
    }

    #[test]
    fn a_proxy_that_was_named_stays_the_way_to_a_machine_without_a_host_that_counts() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let read = read_relayed(&words, &["a".into()], &[]);
            read.map(|push| push.proxy.proxy.map(|proxy| proxy.to_string()))
        };
        assert_eq!(read(&["--proxy=socks5://p:9"]).unwrap().as_deref(), Some("socks5://p:9"));
        assert_eq!(read(&["--proxy=none"]).unwrap(), None);
        assert_eq!(read(&[]).unwrap(), None);
        let both = read(&["--proxy=socks5://p:9", "--fabric"]).unwrap_err();
        assert!(both.to_string().contains("cannot take --fabric"), "{both}");
    }

    #[test]
    fn nothing_that_names_a_file_or_a_program_is_taken_from_the_near_end() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let read = read_relayed(&words, &["a".into()], &["dtn2".into(), "10.0.0.5".into()]);
            read.map_err(|problem| problem.to_string())
        };
        for word in [
            "--manifest=/etc/x",
            "--ssh=sh",
            "--files-from=/etc/shadow",
            "--token-file=/x",
            "--proxy=@/etc/shadow",
            "-n",
            "x",
            "",
            "--",
            "--=x",
            "--no-such",
        ] {
            let error = read(&["--streams=2", word]).unwrap_err();
            assert!(error.contains("cannot send as it was asked for"), "{word}: {error}");
            assert!(!error.contains("/etc/"), "{word}: {error}");
        }
        assert!(read(&["--streams=900"]).unwrap_err().contains("1..=64"));
        assert!(read(&["--protection=safe", "--digest=none"]).unwrap_err().contains("--digest"));
        let words = ["--streams=2", "--exclude=-x y", "--dry-run", "--proxy=socks5://p:9"];
        let PushOptions { options, proxy } = read(&words).unwrap();
        assert_eq!(
            (proxy.proxy.unwrap().to_string(), proxy.without),
            ("socks5://p:9".into(), vec![])
        );
        assert_eq!(options.streams, Some(2));
        assert_eq!(options.selection.rules[0].pattern, b"-x y");
        assert!(options.file_options.dry_run);
    }
}
