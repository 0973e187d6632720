//! Reading of files that are as large as those offered, to be compared.
//!
//! The sender says what comes of it.

use super::{context::Context, stage::Stage};
use crate::{
    error::{io_fault, io_problem_fault},
    file_status::FileStatus,
    session::{growth::growth, hashing::Hashing},
    storage::target::OpenFile,
};
use haul_protocol::{
    FileId,
    message::{self, Side},
    receiver::Answer,
};
use std::time::Instant;

pub(super) struct Comparing(Hashing);

impl Comparing {
    /// Starts with no file; `wake` is called when one has been read.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Hashing::new(wake))
    }

    /// Whether any file is being read.
    pub fn is_busy(&self) -> bool {
        self.0.is_busy()
    }

    /// Has the file that is there read; the offer is answered once it has been.
    pub fn begin(&mut self, file: FileId, open: OpenFile, context: &mut Context<'_>) {
        let size_bytes = context.offer(file).map_or(0, |offer| offer.size_bytes);
        if let Err(error) = self.0.begin_hash(file, size_bytes, open) {
            let fault = io_problem_fault(Side::Target, "no thread to compare files", &error);
            context.settle(file, FileStatus::Failed, Some(fault.clone()));
            context.answer(file, Answer::Fault(fault));
        }
    }
}

impl Stage for Comparing {
    fn tick(&mut self, _now: Instant, context: &mut Context<'_>) {
        for (file, hashed) in self.0.take_results() {
            // Given up meanwhile: settled.
            let Some(offer) = context.offer(file) else { continue };
            let answer = match hashed {
                Ok(content) => {
                    if let Some(open) = context.open.remove(&file)
                        && growth(&open.offer).is_none()
                    {
                        context.tally.forget_offer(&open.offer);
                    }
                    Answer::Compare(message::Compare { blake3: content })
                }
                Err(error) => {
                    let what = "what is there cannot be compared";
                    let fault = io_fault(Side::Target, &offer.name, what, &error);
                    context.settle(file, FileStatus::Failed, Some(fault.clone()));
                    Answer::Fault(fault)
                }
            };
            context.answer(file, answer);
        }
    }

    fn stop(&mut self) {
        self.0.stop();
    }
}
