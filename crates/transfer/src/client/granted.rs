//! Check of what a server granted against what it was asked for.

use super::Client;
use crate::{name::printable, options::digest_name};
use haul_protocol::{
    CAPABILITY_PRIVATE, CAPABILITY_RANGES, CAPABILITY_RECHECK,
    handshake::Granted,
    limits,
    message::{self, Fault, FaultCode},
};

impl Client<'_> {
    /// Refuses a server whose greeting says that it has no private streams. An older one would
    /// answer that it does not know what it is asked for, and nothing of its own age.
    pub(super) fn check_reply(&self, reply: &message::HelloReply) -> Result<(), Fault> {
        let is_private = self.open.protection == message::Protection::Private;
        if !is_private || reply.capabilities.contains(&CAPABILITY_PRIVATE) {
            return Ok(());
        }
        let what = "the server cannot take or send data under --protection private";
        Err(Fault::new(FaultCode::Version, message::Side::Unknown, what)
            .needs("a haul there that knows private data streams (TLS 1.3 on each)")
            .found(format!("{}, which does not", printable(&reply.software)))
            .hint(
                "install the same haul version there; with --protection safe nobody on the path \
                 can change the data unseen, and everybody there can read it",
            ))
    }

    /// Refuses a server that grants less than it was asked for: protection, or what only newer ones
    /// do.
    pub(super) fn check_granted(&self, granted: &Granted) -> Result<(), Fault> {
        let opened = &granted.opened;
        let asked = (self.open.protection, self.open.digest);
        let streams = self.options.streams.unwrap_or(limits::STREAMS_MAX);
        if !opened.discard && self.file_options.discard {
            let what = "the server would keep what is only to be measured";
            return Err(Fault::new(FaultCode::Version, message::Side::Target, what)
                .needs("a server that knows haul probe")
                .found("one that does not")
                .hint("install the same haul version on both ends"));
        }
        if self.file_options.recheck && !granted.capabilities.contains(&CAPABILITY_RECHECK) {
            let what = "the server knows nothing of reading back what an earlier run left";
            return Err(Fault::new(FaultCode::Version, message::Side::Unknown, what)
                .needs("a server that knows --recheck")
                .found("one that does not")
                .hint("install the same haul version on both ends, or leave --recheck out"));
        }
        if self.file_options.ranges && !granted.capabilities.contains(&CAPABILITY_RANGES) {
            let what = "the server knows nothing of files that come in ranges";
            return Err(Fault::new(FaultCode::Version, message::Side::Unknown, what)
                .needs("a server that takes one file from several runs")
                .found("one that does not")
                .hint("install the same haul version there, or plan with --whole-files"));
        }
        if opened.verify_target != self.open.verify_target {
            let what = "the server cannot read the target back";
            return Err(Fault::new(FaultCode::Version, message::Side::Target, what)
                .needs("a server that knows --verify-target")
                .found("one that does not")
                .hint("install the same haul version on both ends, or leave --verify-target out"));
        }
        if (opened.protection, opened.digest) == asked && opened.streams <= streams {
            return Ok(());
        }
        let what = "the server granted something else than it was asked for";
        let name = |protection, digest, streams: u32| {
            format!("{protection:?} with {}, {streams} streams", digest_name(digest)).to_lowercase()
        };
        Err(Fault::new(FaultCode::ProtectionTooLow, message::Side::Unknown, what)
            .needs(name(asked.0, asked.1, streams) + " at most")
            .found(name(opened.protection, opened.digest, opened.streams))
            .hint("do not trust this server"))
    }
}
