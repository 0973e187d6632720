//! Arguments of `haul verify`.

use clap::Args;
use haul_transfer::VerifyRequest;
use std::path::PathBuf;

/// Reads files again from their disks and compares them with a manifest
///
/// MANIFEST is one that `haul push` or `haul pull` wrote with --manifest, or that `b3sum` printed.
/// The page cache is bypassed: by O_DIRECT where the file system has it, else it is told to forget
/// each file before it is read. On a file system without a disk, as tmpfs, there is nothing else to
/// read. Each file that is not the same is named.
///
/// The journal of an unfinished transfer, .NAME.haul-journal, is taken as MANIFEST too: then the
/// temporary beside it is compared by the digests in the journal; where it has none of a span, the
/// answer is `not known`.
#[derive(Debug, Args)]
pub struct LowVerify {
    /// Lines of a BLAKE3 hash, two blanks and a name; or a journal
    #[arg(value_name = "MANIFEST")]
    pub manifest: PathBuf,
    /// Directory that the names are below; without it the one that MANIFEST lies in
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Name the files below DIR that MANIFEST has no line for, too
    #[arg(long)]
    pub extra: bool,
    /// Threads that read; without it as many as there are processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: Option<u16>,
    /// Print one JSON object a line: file, progress, error, report
    #[arg(long)]
    pub json: bool,
    /// Print the files that are not the same, and errors, only (with --json: no progress either)
    #[arg(long, short)]
    pub quiet: bool,
}

impl LowVerify {
    #[must_use]
    pub fn checked(self) -> VerifyRequest {
        let mut request = VerifyRequest::new(self.manifest);
        request.directory = self.directory;
        request.extra = self.extra;
        request.threads = self.threads.map(usize::from);
        request
    }
}
