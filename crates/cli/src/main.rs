//! `haul`, the program: it runs the command line and ends with its exit status.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    haul_sys::file_size_limit::survive();
    haul::run(std::env::args_os())
}
