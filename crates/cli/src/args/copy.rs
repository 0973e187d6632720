//! Arguments of `haul copy`, and their check.

use super::{
    relayed::{GivenOptions, relayed_words},
    ssh::OtherSide,
    transfer::{LowPull, LowPush, LowTransfer},
    usage_problem,
};
use crate::ssh::{Ports, login::Login, program::SshProgram, ways::Way};
use clap::Args;
use haul_transfer::{Problem, TransferOptions};
use std::ffi::OsString;

/// Copies between two machines that ssh reaches: the bytes go from one to the other
///
/// SOURCE is user@host:path, and more paths of the same machine, with patterns as for `haul pull`.
/// TARGET is user@host:path of another machine, as for `haul push`. Both have haul, or get it by
/// --install-remote. The first connects to a port of the second. Where it cannot, the second
/// connects to the first, and at last the data goes through both ssh, by way of here. --bind,
/// --dscp and --proxy are for the connections that the first makes. What is shown here is as of a
/// push.
///
/// With one side here, it is `haul push` or `haul pull`.
#[derive(Debug, Args)]
#[command(override_usage = "haul copy [OPTIONS] <[USER@]HOST:PATH>... <[USER@]HOST:PATH>")]
pub struct LowCopy {
    // First: those behind it take their values out of the matches.
    #[command(flatten)]
    pub given: GivenOptions,
    #[arg(value_name = "SOURCE", required = true, num_args = 1..)]
    #[arg(help = "[USER@]HOST:path of one machine, and last TARGET: [USER@]HOST:dir/ of another")]
    pub words: Vec<OsString>,
    #[command(flatten)]
    pub transfer: LowTransfer,
}

/// A checked copy.
#[derive(Debug)]
pub enum CheckedCopy {
    Push(LowPush),
    Pull(LowPull),
    Between(Box<Between>),
}

/// A copy from one machine to another, neither of them this one.
#[derive(Debug)]
pub struct Between {
    pub program: SshProgram,
    pub from: Login,
    pub paths: Vec<Vec<u8>>,
    pub to: Login,
    pub path: Vec<u8>,
    pub ports: Option<Ports>,
    pub way: Way,
    pub options: TransferOptions,
    /// Options of a push for the machine that sends.
    pub relayed: Vec<String>,
    pub transfer: LowTransfer,
}

impl LowCopy {
    /// Checks the words of `haul copy`.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(self) -> Result<CheckedCopy, Problem> {
        let Self { given, words, transfer } = self;
        let hint = "name both sides: haul copy ann@dtn1:/data/run7 bob@dtn2:/archive/";
        let Some((target, sources)) = words.split_last().filter(|(_, rest)| !rest.is_empty())
        else {
            let needs = "a source and a target";
            return Err(usage_problem("nothing to copy", needs, "one of them", hint));
        };
        let is_here = |word: &OsString| !OtherSide::is_named_by(word);
        match (sources.iter().all(is_here), is_here(target)) {
            (true, true) => {
                let needs = "another machine, as [USER@]HOST:PATH";
                let hint = "within this machine cp and rsync copy";
                Err(usage_problem("nothing to copy over a network", needs, "names here", hint))
            }
            (true, false) => {
                Ok(CheckedCopy::Push(LowPush { words, plan: None, shard: None, transfer }))
            }
            (false, true) => Ok(CheckedCopy::Pull(LowPull { words, transfer })),
            (false, false) => between(&given, sources, target, transfer),
        }
    }
}

fn between(
    given: &GivenOptions,
    sources: &[OsString],
    target: &OsString,
    transfer: LowTransfer,
) -> Result<CheckedCopy, Problem> {
    let by_ssh = |words: &[OsString]| match OtherSide::named_by(
        words,
        &transfer.ssh,
        transfer.token_file.as_deref(),
    )? {
        OtherSide::BySsh { program, login, paths, ports, way, .. } => {
            Ok((program, login, paths, (ports, way)))
        }
        OtherSide::Server(urls) => {
            let needs = "[USER@]HOST:PATH on both sides, for ssh starts haul there";
            let found = urls[0].to_string();
            let hint = "with a URL, run `haul push` on the machine that has the files";
            Err(usage_problem("cannot copy between both", needs, &found, hint))
        }
    };
    let (program, from, paths, _) = by_ssh(sources)?;
    let (_, to, mut path, (ports, way)) = by_ssh(std::slice::from_ref(target))?;
    transfer.proxy.check_way(way)?;
    transfer.connections.check_way(way)?;
    let relayed = relayed_words(given)?;
    let options = transfer.checked(sources)?;
    let path = path.remove(0);
    let between =
        Between { program, from, paths, to, path, ports, way, options, relayed, transfer };
    Ok(CheckedCopy::Between(Box::new(between)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{LowArgs, LowCommand};
    use clap::Parser;

    fn copy(words: &[&str]) -> Result<CheckedCopy, String> {
        let words = [&["haul", "copy"], words].concat();
        match LowArgs::try_parse_from(words).map_err(|error| error.to_string())?.command {
            LowCommand::Copy(low) => low.checked().map_err(|problem| problem.to_string()),
            other => panic!("not a copy: {other:?}"),
        }
    }

    #[test]
    fn a_copy_with_one_side_here_is_a_push_or_a_pull() {
        assert!(matches!(copy(&["a", "b", "h:x/"]), Ok(CheckedCopy::Push(_))));
        assert!(matches!(copy(&["a", "haul://h/x/"]), Ok(CheckedCopy::Push(_))));
        assert!(matches!(copy(&["h:a", "h:b", "."]), Ok(CheckedCopy::Pull(_))));
        for (words, says) in [
            (&["a", "b"][..], "cp and rsync"),
            (&["h:a"], "haul copy ann@dtn1"),
            (&["haul://h/a", "k:b"], "haul push"),
            (&["h:a", "haul://k/b"], "haul push"),
            (&["h:a", "k:a", "l:b"], "two machines at once"),
            (&["h:a", "b", "l:b"], "haul://"),
            (&["h:a", "k:b", "--manifest", "m"], "cannot take --manifest"),
            (&["h:a", "k:b", "--files-from=m"], "cannot take --files-from"),
            (&["h:a", "k:b", "--token-file", "t"], "cannot take --token-file"),
            (&["h:a", "k:b", "--scitag=2.1", "--firefly=h:1"], "cannot take --firefly"),
            (&["h:a", "k:b", "--proxy", "ftp://h"], "cannot take --proxy"),
            (&["h:a", "k:b", "--proxy=http://h", "--reverse"], "found --reverse"),
            (&["h:a", "k:b", "--bind=eth0", "--reverse"], "cannot take --bind"),
            (&["h:a", "k:b", "--dscp=le", "--through-ssh"], "cannot take --dscp"),
            (&["h:a", "k:b", "--scitag=2.1", "--reverse"], "cannot take --scitag"),
        ] {
            let error = copy(words).unwrap_err();
            assert!(error.contains(says), "{words:?}: {error}");
        }
    }

    #[test]
    fn options_go_to_the_machine_that_sends_as_they_were_given() {
        let words = ["h:a", "--exclude", "*.tmp", "--include=b", "--exclude", "c d", "-n", "k:b"];
        let more = ["--protection", "private", "--streams=3", "--fabric", "--json", "--move"];
        let all = [&words[..], &more, &["--ssh", "ssh -p 9", "--preserve", "none"]].concat();
        let Ok(CheckedCopy::Between(between)) = copy(&all) else { panic!("between") };
        assert_eq!(
            between.relayed,
            [
                "--exclude=*.tmp",
                "--include=b",
                "--exclude=c d",
                "--dry-run",
                "--protection=private",
                "--streams=3",
                "--fabric=auto",
                "--move",
                "--preserve=none"
            ]
        );
        assert_eq!((between.from.word(), between.to.word()), ("h".into(), "k".into()));
    }
}
