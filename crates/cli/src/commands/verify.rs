//! `haul verify`: reads files again and compares them with a manifest.

use crate::{
    args::verify::LowVerify,
    failure::{ExitStatus, Failure},
    interrupt,
    ui::verify::VerifyScreen,
};

/// Verifies files and shows what it finds.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(low: LowVerify) -> Result<ExitStatus, Failure> {
    let interrupt = interrupt::on_signals()?;
    haul_transfer::raise_open_files_limit();
    let mut screen = VerifyScreen::new(low.json, low.quiet);
    let request = low.checked();
    let result = haul_transfer::verify(&request, &interrupt, &mut |event| screen.event(&event));
    screen.finish();
    let report = result?;
    screen.report(&report);
    Ok(if report.ok { ExitStatus::AllDone } else { ExitStatus::SomeFailed })
}
