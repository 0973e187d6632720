//! `haul`, the program: it runs the command line and ends with its exit status.
//!
//! All of it runs on a thread with a stack of its own, so that no limit of the user's (`ulimit -s`)
//! makes it overflow.

#![forbid(unsafe_code)]

use haul::{args::usage_problem, failure::Failure};
use std::{
    ffi::OsString,
    hint, io, panic,
    process::{self, ExitCode},
    thread::{self, JoinHandle},
};

/// Bytes of the stack: what Linux gives to the first thread of a program where nobody has set
/// anything else.
const STACK_BYTES: usize = 8 << 20;
/// Least memory to work with beside the stack. Without it an allocation later would end the program
/// with no word of a limit.
const HEAP_BYTES_MIN: usize = 32 << 20;
/// The exit status of a Rust program that panicked.
const PANICKED: u8 = 101;

fn main() -> ExitCode {
    end_at_a_panic();
    haul_sys::file_size_limit::survive();
    haul_transfer::internals::grow_descriptor_table();
    let words: Vec<OsString> = std::env::args_os().collect();
    let wants_json = words.iter().any(|word| word == "--json");
    match run(words) {
        Ok(running) => {
            // Ctrl-C wakes the thread that works. Should it not, the next look at the flag does.
            let _ = haul_sys::signal_mask::leave_to_other_threads();
            running.join().unwrap_or(ExitCode::from(PANICKED))
        }
        Err(error) => {
            let what = "nothing could be started: there is no room for it";
            let needs = "40 MiB of memory, 8 MiB of them for a stack, and one more thread";
            let hint = "raise the limit on memory (ulimit -v) or on processes (ulimit -u)";
            let problem = usage_problem(what, needs, &error.to_string(), hint);
            ExitCode::from(Failure::from(problem).show(wants_json) as u8)
        }
    }
}

/// Makes a panic on any thread the end of the program, in builds that unwind, too: nobody waits for
/// a thread that is gone, and no lock is found as a panic left it. The next run resumes.
fn end_at_a_panic() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        usual(panic);
        process::abort();
    }));
}

fn run(words: Vec<OsString>) -> io::Result<JoinHandle<ExitCode>> {
    // Reserved and given back untouched: it costs nothing.
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(STACK_BYTES + HEAP_BYTES_MIN)?;
    drop(hint::black_box(room));
    let builder = thread::Builder::new().name("haul".to_owned()).stack_size(STACK_BYTES);
    builder.spawn(|| haul::run(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::process::ExitStatusExt, process::Command};

    /// Variable that makes a test panic, in a process of its own.
    const PANICS: &str = "HAUL_TEST_PANICS";

    #[test]
    fn a_panic_on_any_thread_ends_the_program() {
        if std::env::var_os(PANICS).is_some() {
            end_at_a_panic();
            let _ = thread::spawn(|| panic!("of a test")).join();
            process::exit(0);
        }
        let program = std::env::current_exe().unwrap();
        let name = "tests::a_panic_on_any_thread_ends_the_program";
        let ended =
            Command::new(program).args(["--exact", name]).env(PANICS, "1").output().unwrap();
        assert_eq!(ended.status.signal(), Some(6), "SIGABRT: {ended:?}");
    }
}
