//! Tasks that the two processes of `haul bench fabric` do in step: messages, and files.

use haul_fabric::Wait;
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, path::PathBuf};

/// The way of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageWay {
    /// A TCP connection: write and read, which sleep.
    Tcp,
    /// Endpoints whose ends poll.
    Poll,
    /// Endpoints whose ends sleep until a completion.
    Sleep,
    /// Endpoints whose ends poll for a while where that paid, and sleep then.
    Adaptive,
}

impl MessageWay {
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Poll, Self::Sleep, Self::Adaptive];

    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Poll => "endpoint, poll",
            Self::Sleep => "endpoint, sleep",
            Self::Adaptive => "endpoint, adaptive",
        }
    }

    /// The wait of both ends; `None` without endpoints.
    pub fn wait(self) -> Option<Wait> {
        match self {
            Self::Tcp => None,
            Self::Poll => Some(Wait::Poll),
            Self::Sleep => Some(Wait::Sleep),
            Self::Adaptive => Some(Wait::Adaptive),
        }
    }
}

/// The way of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileWay {
    /// sendfile(2) to a TCP connection.
    TcpSendfile,
    /// Read into a registered buffer, and sent from there.
    OneCopy,
    /// Sent out of the page cache.
    SendFile,
}

impl FileWay {
    pub const ALL: [Self; 3] = [Self::TcpSendfile, Self::OneCopy, Self::SendFile];

    pub fn name(self) -> &'static str {
        match self {
            Self::TcpSendfile => "TCP sendfile",
            Self::OneCopy => "endpoint, one copy",
            Self::SendFile => "endpoint, send_file",
        }
    }
}

/// Work that both sides do in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// A message goes to and fro.
    Latency { way: MessageWay, message_bytes: u64 },
    /// Messages go one way, one behind the other.
    Bandwidth { way: MessageWay, message_bytes: u64 },
    /// A file goes again and again, each time once the one before is sent.
    File { way: FileWay, file_bytes: u64 },
}

impl Task {
    /// Bytes of a message or of the file.
    pub fn len_bytes(self) -> u64 {
        match self {
            Self::Latency { message_bytes, .. } | Self::Bandwidth { message_bytes, .. } => {
                message_bytes
            }
            Self::File { file_bytes, .. } => file_bytes,
        }
    }

    /// The task in words, for a step.
    pub fn words(self) -> String {
        let bytes = haul_report::units::bytes_in_words(self.len_bytes());
        match self {
            Self::Latency { way, .. } => format!("latency, {}, {bytes}", way.name()),
            Self::Bandwidth { way, .. } => format!("bandwidth, {}, {bytes}", way.name()),
            Self::File { way, .. } => format!("files, {}, {bytes}", way.name()),
        }
    }
}

/// Repeats of a task: as many as fit into the time, within these limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    pub least: u64,
    pub most: u64,
    /// Time of one task, about; `None` is as long as the most takes.
    pub time_ms: Option<u64>,
}

impl Repeats {
    /// Repeats for a task of which one took this long.
    pub fn fitting(self, one_ns: u64) -> u64 {
        let fits = self.time_ms.map_or(u64::MAX, |ms| ms * 1_000_000 / one_ns.max(1));
        fits.clamp(self.least, self.most.max(self.least))
    }
}

/// Work of a side; file names are relative to its working directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FabricSpec {
    /// The name of a provider.
    pub fabric: String,
    /// The address of both sides.
    pub address: IpAddr,
    pub role: FabricRole,
    /// The processor that the side stays on.
    pub processor: Option<usize>,
    pub tasks: Vec<Task>,
    pub repeats: Repeats,
    /// Files to send, named by their length in bytes.
    pub files: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FabricRole {
    /// Wait for the other side, and answer.
    Answer,
    /// Send, and measure.
    Ask { port: u16 },
}

/// A task that was done, as the side that sends saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDone {
    pub repeats: u64,
    /// Time of all repeats at the sender.
    pub sender_ns: u64,
    /// Time until the receiver has said that it has all.
    pub all_ns: u64,
    /// Processor time of the sender's process, in all its threads, until it had sent all.
    pub cpu_ns: u64,
    /// Bytes that went through registered buffers of the sender, among them those it copied.
    pub buffered_bytes: u64,
    /// Bytes of files that were read into a buffer.
    pub copied_bytes: u64,
    /// Bytes that went out of windows on files.
    pub window_bytes: u64,
    pub windows: u64,
    pub registering_ns: u64,
    pub messages: u64,
    pub waits_for_room: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_fit_into_the_time_and_its_limits() {
        let repeats = Repeats { least: 3, most: 1000, time_ms: Some(10) };
        assert_eq!(repeats.fitting(100_000), 100);
        assert_eq!(repeats.fitting(0), 1000);
        assert_eq!(repeats.fitting(1_000_000_000), 3);
        assert_eq!(Repeats { time_ms: None, ..repeats }.fitting(1_000_000_000), 1000);
        assert_eq!(Repeats { least: 5, most: 2, time_ms: None }.fitting(1), 5);
    }
}
