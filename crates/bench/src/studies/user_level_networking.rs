//! Figures of Park, Chung et al.'s study of user-level networking, none of which haul can measure.
//!
//! All of them need a transport that it does not have yet.

use super::{Figure, MeasuredBy, Study};
use haul_report::study_figure::StudyName;

const NAME: StudyName = StudyName {
    id: "user-level-networking",
    title: "A file send for user-level networking (2005)",
};

pub const STUDY: Study = Study {
    name: NAME,
    source: "Park, Chung et al., Zero-copy file transfer for VIA-based PC clusters (KIISE 2005)",
    words: "The Virtual Interface Architecture, the forerunner of today's RDMA, let programs use a \
            network card without the kernel, but a file had to be copied into the program's memory \
            first. The study adds one call, VipSendFile, with which the card reads the kernel's \
            page cache itself. It took about half the time of TCP's sendfile for files of 1 KB to \
            256 KB. haul has no RDMA transport yet, so nothing of it is repeated.",
    figures: &[&LATENCY, &BANDWIDTH, &PROCESSOR, &FILE_LATENCY, &FILE_PROCESSOR],
};

const NO_TRANSPORT: MeasuredBy =
    MeasuredBy::Nothing("needs a transport over RDMA, which haul does not have yet");

const LATENCY: Figure = Figure {
    study: NAME,
    number: "latency",
    shows: "the latency of one message by hardware VIA, TCP and software VIA",
    rule: "Hardware VIA has the least latency, TCP the most.",
    theirs: "Theirs: 8.2 us by hardware VIA, 27 us by TCP, 21.3 us by software VIA.",
    command: "",
    by: NO_TRANSPORT,
};

const BANDWIDTH: Figure = Figure {
    study: NAME,
    number: "bandwidth",
    shows: "the bandwidth on a gigabit network by hardware VIA, TCP and software VIA",
    rule: "Hardware VIA has the highest bandwidth, TCP the lowest.",
    theirs: "Theirs: 112.1 MB/s by hardware VIA, 72.5 by TCP, 90.5 by software VIA.",
    command: "",
    by: NO_TRANSPORT,
};

const PROCESSOR: Figure = Figure {
    study: NAME,
    number: "processor use by message size",
    shows: "the processor's use by the size of messages",
    rule: "VIA uses less of the processor than TCP at each size.",
    theirs: "Theirs are curves; the numbers behind them are not told.",
    command: "",
    by: NO_TRANSPORT,
};

const FILE_LATENCY: Figure = Figure {
    study: NAME,
    number: "file latency by size",
    shows: "the sender's latency for files of 1 KB to 256 KB by TCP's sendfile, VI send and \
            receive, and VipSendFile",
    rule: "VipSendFile takes less time than TCP's sendfile at each size.",
    theirs: "Theirs: VipSendFile takes 47 to 52 % less time than TCP's sendfile.",
    command: "",
    by: NO_TRANSPORT,
};

const FILE_PROCESSOR: Figure = Figure {
    study: NAME,
    number: "file processor time by size",
    shows: "the sender's processor time for files of 1 KB to 256 KB by the same three ways",
    rule: "VipSendFile takes less processor time than VI send and receive at each size.",
    theirs: "Theirs: VipSendFile takes 30 to 40 % of the processor time of VI send and receive, \
             and hardly more for larger files.",
    command: "",
    by: NO_TRANSPORT,
};
