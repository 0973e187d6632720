//! Options that users of rsync, scp and cp type by habit, answered in words.
//!
//! The answer tells what haul does by itself, or how the option is called here.

use super::usage_problem;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use haul_transfer::Problem;
use std::ffi::OsString;

/// Options typed by habit, with what to do instead.
const HABITS: [(&[&str], &str); 9] = [
    (&["-r", "-R", "--recursive"], "leave it out: a directory always comes with all that is in it"),
    (
        &["-a", "--archive"],
        "leave it out: directories, links, modes and times always come; --preserve all brings \
         owners, groups, extended attributes and ACLs as well",
    ),
    (&["-v", "--verbose"], "leave it out: -n names all that would be done, --json each file"),
    (&["-p", "-t"], "leave it out: modes and times always come; --preserve chooses"),
    (&["-P", "--progress", "--partial"], "leave it out: progress is shown, and what came is kept"),
    (
        &["--resume", "--continue", "--append"],
        "leave it out: the same command, run again, goes on where it stopped",
    ),
    (&["--port"], "leave it out: the port stands in the URL, haul://TOKEN@HOST:PORT/path"),
    (&["-e", "--rsh"], "leave it out: --ssh 'ssh -p 2222' names the ssh program and its options"),
    (&["-z", "--compress"], "leave it out: haul moves the bytes as they are"),
];

/// Commands of other movers, with what they are called here.
const COMMANDS: [(&[&str], &str); 3] = [
    (&["get", "fetch", "download", "receive", "recv"], "pull URL DIR"),
    (&["put", "send", "upload", "cp", "sync"], "push SOURCE URL; haul pull URL DIR fetches"),
    (&["list", "dir"], "ls URL"),
];

/// Turns a habit into a problem, where it is why a command line cannot be read.
#[must_use]
pub fn habit(error: &clap::Error, words: &[OsString]) -> Option<Problem> {
    let command = words.get(1)?.to_str()?;
    if error.kind() == ErrorKind::InvalidSubcommand {
        let (_, instead) = COMMANDS.iter().find(|(habits, _)| habits.contains(&command))?;
        let what = format!("haul has no command {command}");
        return Some(usage_problem(&what, "", "", &format!("it is haul {instead}")));
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let hint = match command {
        "push" | "pull" | "copy" => {
            HABITS.iter().find(|(names, _)| names.contains(&option.as_str()))?.1
        }
        "serve" if option == "--port" => "it is --listen :PORT, or --listen ADDRESS:PORT",
        _ => return None,
    };
    let what = format!("haul {command} has no option {option}");
    Some(usage_problem(&what, "", "", hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &[&str]) -> Option<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let error = crate::args::command().try_get_matches_from(&words).unwrap_err();
        habit(&error, &words).map(|problem| problem.to_string())
    }

    #[test]
    fn habits_of_other_movers_are_answered_and_other_mistakes_left_alone() {
        let mut options: Vec<&str> =
            HABITS.iter().flat_map(|(options, _)| *options).copied().collect();
        options.extend(["-av", "-rv", "-avz"]);
        for option in options {
            for words in [
                ["haul", "push", option, "a", "haul://h"],
                ["haul", "pull", "haul://h/a", option, "."],
                ["haul", "copy", "h:a", option, "k:"],
            ] {
                let said = refused(&words).unwrap_or_else(|| panic!("{words:?}"));
                assert!(said.contains("eave it out"), "{said}");
            }
        }
        assert_eq!(refused(&["haul", "push", "--nonsense", "a", "haul://h"]), None);
        assert_eq!(refused(&["haul", "serve", "-r"]), None);
        assert!(
            refused(&["haul", "serve", ".", "--port", "9"]).unwrap().contains("--listen :PORT")
        );
        for (habits, instead) in COMMANDS {
            for habit in habits {
                let said = refused(&["haul", habit, "haul://h/x"]).unwrap();
                assert!(said.ends_with(&format!("t is haul {instead}.")), "{said}");
                assert!(crate::args::command().find_subcommand(habit).is_none(), "{habit}");
            }
        }
        // None of them is an option of haul meanwhile.
        let known = crate::args::command();
        for command in ["push", "pull", "copy"] {
            let command = known.find_subcommand(command).unwrap();
            let is_habit = |arg: &clap::Arg| {
                let names = [
                    arg.get_short().map(|short| format!("-{short}")),
                    arg.get_long().map(|long| format!("--{long}")),
                ];
                names
                    .iter()
                    .flatten()
                    .any(|name| HABITS.iter().any(|(options, _)| options.contains(&name.as_str())))
            };
            assert!(!command.get_arguments().any(is_habit));
        }
    }
}
