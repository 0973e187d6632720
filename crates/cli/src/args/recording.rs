//! Options of `haul push` and `haul pull` for files that are still being written.

use super::{usage_problem, values::Period};
use clap::Args;
use haul_transfer::{IDLE_DEFAULT, Problem, TransferOptions};

/// Options that make no sense for a file that is still being written.
const NOT_FOLLOWED: [&str; 7] = [
    "checksum_compare",
    "delete",
    "dry_run",
    "preflight",
    "move_sources",
    "manifest",
    "verify_target",
];
/// Options that make no sense without an end.
const NOT_WATCHED: [&str; 6] =
    ["files_from", "delete", "dry_run", "preflight", "move_sources", "manifest"];

#[derive(Debug, Args)]
#[command(next_help_heading = "Recordings")]
pub struct LowRecording {
    /// Send each file while it is written, until its writer closes or renames it, or it is idle
    ///
    /// What came is durable at the target about once a second, and gets its name at the end. Then
    /// both sides read all of it once, for a writer may have changed earlier bytes; if it has, all
    /// of it is sent again.
    #[arg(long, conflicts_with_all = NOT_FOLLOWED)]
    pub follow: bool,
    /// Trust that a written byte never changes: nothing is read again at the end of --follow
    #[arg(long, requires = "follow")]
    pub append_only: bool,
    /// Send what appears in the source directories too, until Ctrl-C
    ///
    /// A file is sent when its writer closes it or renames it into place, or when nothing was
    /// written to it for --idle; with --follow from its beginning on. One that changes later is
    /// sent anew.
    /// Ctrl-C ends it with status 0 when nothing failed and nothing is under way.
    #[arg(long, conflicts_with_all = NOT_WATCHED)]
    pub watch: bool,
    /// End --watch after this long without anything new
    #[arg(long, value_name = "TIME", requires = "watch")]
    pub watch_for: Option<Period>,
    /// Time without a write after which --follow and --watch take a file as complete
    #[arg(long, value_name = "TIME", default_value_t = Period(IDLE_DEFAULT))]
    pub idle: Period,
}

impl LowRecording {
    /// Puts what was chosen into the options.
    ///
    /// # Errors
    /// Says which option cannot be taken and why.
    pub fn add_to(&self, options: &mut TransferOptions) -> Result<(), Problem> {
        if self.idle.0.is_zero() {
            let hint = "write it like --idle 10s";
            return Err(usage_problem("cannot take --idle", "some time", "0s", hint));
        }
        if self.watch_for.is_some_and(|period| period.0.is_zero()) {
            let hint = "write it like --watch-for 1h";
            return Err(usage_problem("cannot take --watch-for", "some time", "0s", hint));
        }
        let recording = &mut options.file_options.recording;
        recording.follow = self.follow;
        recording.append_only = self.append_only;
        recording.watch = self.watch;
        recording.idle = self.idle.0;
        recording.watch_for = self.watch_for.map(|period| period.0);
        Ok(())
    }
}
