//! The choice of the engine that moves the bytes of a transfer on each side, and its reason.
//!
//! Facts in, a choice and its reason in words out: nothing here asks the system anything. The
//! numbers behind the rules were measured; the tables in `choose/cases.rs` are the
//! place to change when a measurement says otherwise.

use haul_host::FsKind;

use crate::{EngineInfo, Host, Verdict, WireKind, engines};

mod cases;
mod facts;
mod path;
mod place;
mod rechoosing;

pub use cases::LARGE_BYTES;
use cases::{ReceiveCase, SendCase, receiving, sending};
pub use facts::{ReceiveFacts, SendFacts, Source, Target};
pub use path::{
    CongestionChoice, Loss, PathLength, PathSeen, SPAN_BYTES_DEFAULT, SPAN_BYTES_MAX,
    SPAN_BYTES_MIN, SPANS_PER_FILE_MAX, STREAMS_MAX, StreamFacts, congestion, congestion_again,
    send_buffer_bytes, span_bytes, streams,
};
pub use place::{Placement, placement};
pub use rechoosing::{Slowdown, Turn, WINDOW_BYTES, send_engine_again};

#[derive(Clone, Debug)]
pub struct Choice {
    /// Engines that can do it, the best first, then what goes on where it cannot; never empty. Ends
    /// in read-write, but for RDMA endpoints and TLS in this process, which have one engine each.
    pub candidates: Vec<&'static EngineInfo>,
    /// The reason in words for the report, without a full stop.
    pub because: String,
    /// Engines that suit the case and cannot be used here.
    pub passed_over: Vec<PassedOver>,
}

/// An engine that cannot be used here, with the reason in words: "needs .., found ..".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    pub name: String,
    pub why: String,
}

impl std::fmt::Display for PassedOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.why)
    }
}

fn in_one_line(passed_over: &[PassedOver]) -> String {
    passed_over.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Send,
    Receive,
}

impl Direction {
    fn option(self) -> &'static str {
        match self {
            Self::Send => "--send-engine",
            Self::Receive => "--receive-engine",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }
}

/// The reason why the engine that was asked for does not start, and what to use instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    #[error("engine {asked} is not known. {} takes one of: {names}.", direction.option())]
    Unknown { asked: String, direction: Direction, names: String },
    #[error(
        "engine {engine} not started: needs to {}, found that it cannot. {instead}.",
        direction.verb()
    )]
    WrongDirection { engine: &'static str, direction: Direction, instead: String },
    #[error("engine {engine} not started: needs {needs}, found {found}. {instead}.")]
    WrongWire { engine: &'static str, needs: String, found: &'static str, instead: String },
    #[error("engine {engine} not started: needs {needs}, found {found}. {instead}.")]
    Refused { engine: &'static str, needs: &'static str, found: String, instead: String },
    #[error(
        "engine {engine} not started: it throws the bytes away, needs the target null:, \
         found a file on {found}. {instead}."
    )]
    WouldLoseBytes { engine: &'static str, found: FsKind, instead: String },
    #[error("no engine can {} here: {passed_over}.", direction.verb())]
    NoneUsable { direction: Direction, passed_over: String },
}

/// Chooses the engine that reads the source and sends it.
///
/// # Errors
/// If `forced` names an engine that cannot do it here; the text says what to use instead.
pub fn send_engine(facts: &SendFacts<'_>) -> Result<Choice, ChooseError> {
    send_engine_from(&KNOWN, facts)
}

/// Chooses the engine that receives and writes to the target.
///
/// # Errors
/// If `forced` names an engine that cannot do it here; the text says what to use instead.
pub fn receive_engine(facts: &ReceiveFacts<'_>) -> Result<Choice, ChooseError> {
    receive_engine_from(&KNOWN, facts)
}

/// The engines to choose from: tests bring their own.
struct Catalogue {
    find: fn(&str) -> Option<&'static EngineInfo>,
    names: fn() -> Vec<&'static str>,
}

const KNOWN: Catalogue = Catalogue {
    find: engines::find,
    names: || engines::ENGINES.iter().map(|engine| engine.name).collect(),
};

const DISCARD: &str = "discard";
/// Engines that work everywhere, each on its wires.
const LAST_RESORTS: &[&str] = &["read-write", "tls"];

fn send_engine_from(catalogue: &Catalogue, facts: &SendFacts<'_>) -> Result<Choice, ChooseError> {
    let need = Need { host: facts.host, wire: facts.wire, direction: Direction::Send };
    let case = SendCase::of(facts);
    let mut choice = match facts.forced {
        Some(asked) => forced_engine(catalogue, need, asked, case.order())?,
        None => best_engine(catalogue, need, case.order(), |engine| {
            let does = sending(engine.name, facts.wire);
            format!("{}, so {} {does}", case.circumstance(facts), engine.name)
        })?,
    };
    if facts.digest && choice.candidates.first().is_some_and(|engine| !engine.sees_bytes) {
        choice.because.push_str("; the digest reads the page cache beside it");
    }
    if encrypts_unsaid(&choice, facts.wire) {
        choice.because.push_str("; this process encrypts what was read");
    }
    Ok(choice)
}

fn receive_engine_from(
    catalogue: &Catalogue,
    facts: &ReceiveFacts<'_>,
) -> Result<Choice, ChooseError> {
    let need = Need { host: facts.host, wire: facts.wire, direction: Direction::Receive };
    let case = ReceiveCase::of(facts);
    let mut choice = match (facts.forced, facts.target) {
        (Some(DISCARD), Target::File(found)) => {
            let instead = instead(catalogue, need, case.order());
            return Err(ChooseError::WouldLoseBytes { engine: DISCARD, found, instead });
        }
        (Some(asked), _) => forced_engine(catalogue, need, asked, case.order())?,
        (None, _) => best_engine(catalogue, need, case.order(), |engine| {
            let does = receiving(engine.name);
            format!("{}, so {} {does}", case.circumstance(facts), engine.name)
        })?,
    };
    // What came by RDMA is in memory of this process, for the digest too.
    let sees = |engine: &&EngineInfo| engine.sees_bytes || facts.wire == WireKind::Fabric;
    if facts.digest && choice.candidates.first().is_some_and(|engine| !sees(engine)) {
        choice.because.push_str("; the digest reads back what was written");
    }
    if encrypts_unsaid(&choice, facts.wire) {
        choice.because.push_str("; this process decrypts what comes");
    }
    Ok(choice)
}

/// Whether this process encrypts the wire, and the engine's name does not say so.
fn encrypts_unsaid(choice: &Choice, wire: WireKind) -> bool {
    let by_name = choice.candidates.first().is_some_and(|engine| engine.wires == [WireKind::Tls]);
    wire == WireKind::Tls && !by_name
}

/// The abilities that an engine has to have.
#[derive(Clone, Copy)]
struct Need<'facts> {
    host: &'facts Host,
    wire: WireKind,
    direction: Direction,
}

/// The reason why an engine does not meet a need.
enum Unfit {
    Direction,
    Wire { needs: String },
    Refused { needs: &'static str, found: String },
}

impl Need<'_> {
    fn is_met_by(&self, engine: &EngineInfo) -> Result<(), Unfit> {
        let goes_this_way = match self.direction {
            Direction::Send => engine.open_send.is_some(),
            Direction::Receive => engine.open_receive.is_some(),
        };
        if !goes_this_way {
            return Err(Unfit::Direction);
        }
        if !engine.wires.contains(&self.wire) {
            let wires: Vec<_> = engine.wires.iter().map(|wire| wire_name(*wire)).collect();
            return Err(Unfit::Wire { needs: wires.join(" or ") });
        }
        match (engine.probe)(self.host) {
            Verdict::Usable => Ok(()),
            Verdict::Refused { needs, found } => Err(Unfit::Refused { needs, found }),
        }
    }
}

/// Engines of `order` that meet a need, and for each of the others the reason why not.
fn usable(
    catalogue: &Catalogue,
    need: Need<'_>,
    order: &[&str],
) -> (Vec<&'static EngineInfo>, Vec<PassedOver>) {
    let mut candidates = Vec::new();
    let mut passed_over = Vec::new();
    let pass = |name: &str, why| PassedOver { name: name.to_owned(), why };
    for name in order {
        let Some(engine) = (catalogue.find)(name) else {
            passed_over.push(pass(name, "is not in this build".into()));
            continue;
        };
        match need.is_met_by(engine) {
            Ok(()) => candidates.push(engine),
            Err(Unfit::Direction) => {
                passed_over.push(pass(name, format!("does not {}", need.direction.verb())));
            }
            Err(Unfit::Wire { needs }) => passed_over.push(pass(name, format!("needs {needs}"))),
            Err(Unfit::Refused { needs, found }) => {
                passed_over.push(pass(name, format!("needs {needs}, found {found}")));
            }
        }
    }
    (candidates, passed_over)
}

fn best_engine(
    catalogue: &Catalogue,
    need: Need<'_>,
    order: &[&str],
    reason: impl Fn(&EngineInfo) -> String,
) -> Result<Choice, ChooseError> {
    let (candidates, passed_over) = usable(catalogue, need, order);
    let Some(best) = candidates.first() else {
        let passed_over = in_one_line(&passed_over);
        return Err(ChooseError::NoneUsable { direction: need.direction, passed_over });
    };
    let mut because = reason(best);
    // Only those that would have come before the chosen one concern the user.
    let better = order.iter().take_while(|name| **name != best.name).count();
    let better = passed_over.get(..better).unwrap_or_default();
    if !better.is_empty() {
        because.push_str(&format!(" ({})", in_one_line(better)));
    }
    Ok(Choice { candidates, because, passed_over })
}

fn forced_engine(
    catalogue: &Catalogue,
    need: Need<'_>,
    asked: &str,
    order: &[&str],
) -> Result<Choice, ChooseError> {
    let direction = need.direction;
    let Some(engine) = (catalogue.find)(asked) else {
        let names = (catalogue.names)().join(", ");
        return Err(ChooseError::Unknown { asked: asked.to_owned(), direction, names });
    };
    let instead = || instead(catalogue, need, order);
    match need.is_met_by(engine) {
        Ok(()) => {}
        Err(Unfit::Direction) => {
            let instead = instead();
            return Err(ChooseError::WrongDirection { engine: engine.name, direction, instead });
        }
        Err(Unfit::Wire { needs }) => {
            let found = wire_name(need.wire);
            let instead = instead();
            return Err(ChooseError::WrongWire { engine: engine.name, needs, found, instead });
        }
        Err(Unfit::Refused { needs, found }) => {
            let instead = instead();
            return Err(ChooseError::Refused { engine: engine.name, needs, found, instead });
        }
    }
    let (fallback, _) = usable(catalogue, need, LAST_RESORTS);
    let mut candidates = vec![engine];
    candidates.extend(fallback.into_iter().filter(|other| other.name != engine.name));
    let because = format!("{} {} was asked for", direction.option(), engine.name);
    Ok(Choice { candidates, because, passed_over: Vec::new() })
}

/// Advice to take the engine that would be chosen if nothing were asked for.
fn instead(catalogue: &Catalogue, need: Need<'_>, order: &[&str]) -> String {
    let (candidates, _) = usable(catalogue, need, order);
    candidates.first().map_or_else(
        || "No other engine can be used here".to_owned(),
        |best| format!("Choose {} {}", need.direction.option(), best.name),
    )
}

fn wire_name(wire: WireKind) -> &'static str {
    match wire {
        WireKind::Tcp => "plain TCP",
        WireKind::KernelTls => "TLS in the kernel",
        WireKind::Tls => "TLS in this process",
        WireKind::Fabric => "RDMA endpoints",
    }
}

#[cfg(test)]
mod tests {
    use super::{cases::LARGE_BYTES, *};
    use crate::{OpenError, OpenReceive, OpenSend, ReceiveEngine, SendEngine, Setup};

    const GIB: u64 = 1 << 30;

    fn cannot_send(setup: Setup<'_>) -> Result<Box<dyn SendEngine>, OpenError> {
        unreachable!("the chooser opens no engine, not even on {:?}", setup.wire)
    }

    fn cannot_receive(setup: Setup<'_>) -> Result<Box<dyn ReceiveEngine>, OpenError> {
        unreachable!("the chooser opens no engine, not even on {:?}", setup.wire)
    }

    const SENDS: Option<OpenSend> = Some(cannot_send);
    const RECEIVES: Option<OpenReceive> = Some(cannot_receive);
    const BOTH_WIRES: &[WireKind] = &[WireKind::Tcp, WireKind::KernelTls];

    const fn engine(
        name: &'static str,
        open_send: Option<OpenSend>,
        open_receive: Option<OpenReceive>,
    ) -> EngineInfo {
        EngineInfo {
            name,
            summary: "a stand-in",
            wires: BOTH_WIRES,
            align_bytes: 1,
            spans_in_flight_max: 1,
            sees_bytes: true,
            reads_while_sending: false,
            probe: |_| Verdict::Usable,
            open_send,
            open_receive,
        }
    }

    fn needs_io_uring(host: &Host) -> Verdict {
        let found = "kernel.io_uring_disabled = 2".to_owned();
        if host.io_uring_disabled {
            return Verdict::Refused { needs: "io_uring", found };
        }
        Verdict::Usable
    }

    fn needs_dontcache(host: &Host) -> Verdict {
        let found = format!("{}.{}", host.kernel.0, host.kernel.1);
        if host.kernel < (6, 14) {
            return Verdict::Refused { needs: "Linux 6.14", found };
        }
        Verdict::Usable
    }

    /// Engines like the real ones, but that their probes read the host alone.
    static STAND_INS: [EngineInfo; 7] = [
        engine("read-write", SENDS, RECEIVES),
        EngineInfo { sees_bytes: false, ..engine("sendfile", SENDS, None) },
        EngineInfo {
            sees_bytes: false,
            reads_while_sending: false,
            wires: &[WireKind::Tcp],
            ..engine("splice", SENDS, RECEIVES)
        },
        engine("direct", SENDS, RECEIVES),
        EngineInfo { probe: needs_io_uring, ..engine("io-uring", SENDS, RECEIVES) },
        EngineInfo { probe: needs_dontcache, ..engine("dontcache", None, RECEIVES) },
        engine("discard", None, RECEIVES),
    ];

    const CATALOGUE: Catalogue = Catalogue {
        find: |name| STAND_INS.iter().find(|engine| engine.name == name),
        names: || STAND_INS.iter().map(|engine| engine.name).collect(),
    };

    fn host() -> Host {
        Host { kernel: (6, 18), cores: 2, dirty_limit_bytes: 4 * GIB, ..Host::default() }
    }

    fn source(host: &Host, kind: FsKind, resident_share: f64) -> SendFacts<'_> {
        SendFacts {
            host,
            wire: WireKind::Tcp,
            source: Source::File(kind),
            size_bytes: 4 * GIB,
            resident_share,
            digest: false,
            forced: None,
        }
    }

    fn target(host: &Host, kind: FsKind) -> ReceiveFacts<'_> {
        ReceiveFacts {
            host,
            wire: WireKind::Tcp,
            target: Target::File(kind),
            size_bytes: 4 * GIB,
            durable: true,
            grows: false,
            digest: false,
            rotational: None,
            forced: None,
        }
    }

    fn sent(facts: &SendFacts<'_>) -> (Vec<&'static str>, String) {
        let choice = send_engine_from(&CATALOGUE, facts).unwrap();
        (choice.candidates.iter().map(|engine| engine.name).collect(), choice.because)
    }

    fn received(facts: &ReceiveFacts<'_>) -> (Vec<&'static str>, String) {
        let choice = receive_engine_from(&CATALOGUE, facts).unwrap();
        (choice.candidates.iter().map(|engine| engine.name).collect(), choice.because)
    }

    #[test]
    fn a_warm_source_goes_by_sendfile() {
        let (names, because) = sent(&source(&host(), FsKind::Ext, 0.989));
        assert_eq!(names, ["sendfile", "splice", "read-write"]);
        assert_eq!(
            because,
            "98 % of the source is in the page cache, so sendfile moves it without a copy"
        );
    }

    #[test]
    fn a_large_cold_source_on_a_disk_goes_past_the_page_cache() {
        for kind in [FsKind::Ext, FsKind::Xfs, FsKind::Btrfs, FsKind::F2fs] {
            let (names, because) = sent(&source(&host(), kind, 0.02));
            assert_eq!(names, ["io-uring", "direct", "sendfile", "splice", "read-write"]);
            assert_eq!(
                because,
                format!(
                    "the source is large (4 GiB) on {kind} and 2 % of it in the page cache, so \
                     io-uring reads it past the page cache, ahead of the wire"
                )
            );
        }
    }

    #[test]
    fn a_cold_source_elsewhere_goes_by_sendfile() {
        for kind in [FsKind::Nfs, FsKind::Fuse, FsKind::Overlay, FsKind::Zfs, FsKind::Other(7)] {
            let (names, because) = sent(&source(&host(), kind, 0.0));
            assert_eq!(names, ["sendfile", "splice", "read-write"]);
            assert!(because.contains("may not read past it, so sendfile"), "{because}");
        }
    }

    #[test]
    fn a_small_cold_source_goes_by_sendfile() {
        let host = host();
        let facts = SendFacts { size_bytes: 3 << 20, ..source(&host, FsKind::Ext, 0.0) };
        let (names, because) = sent(&facts);
        assert_eq!(names, ["sendfile", "splice", "read-write"]);
        assert!(because.starts_with("the source is small (3 MiB) and 0 % of it"), "{because}");
    }

    #[test]
    fn zeros_go_by_sendfile_whatever_is_said_of_the_page_cache() {
        let host = host();
        for resident_share in [0.0, 1.0, f64::NAN] {
            let facts =
                SendFacts { source: Source::Zeros, ..source(&host, FsKind::Ext, resident_share) };
            let (names, because) = sent(&facts);
            assert_eq!(names, ["sendfile", "splice", "read-write"]);
            assert_eq!(because, "the source is zeros, so sendfile moves it without a copy");
        }
    }

    #[test]
    fn a_share_that_is_no_number_counts_as_cold() {
        let (names, because) = sent(&source(&host(), FsKind::Ext, f64::NAN));
        assert_eq!(names[0], "io-uring");
        assert!(because.contains("ext4 and 0 % of it"), "{because}");
    }

    #[test]
    fn an_engine_that_its_probe_refuses_is_passed_over_and_the_reason_says_so() {
        let host = Host { io_uring_disabled: true, ..host() };
        let (names, because) = sent(&source(&host, FsKind::Xfs, 0.0));
        assert_eq!(names, ["direct", "sendfile", "splice", "read-write"]);
        let end = "so direct reads it past the page cache \
                   (io-uring needs io_uring, found kernel.io_uring_disabled = 2)";
        assert!(because.ends_with(end), "{because}");
    }

    #[test]
    fn an_engine_that_does_not_work_over_the_wire_is_no_candidate() {
        let host = host();
        let facts = SendFacts { wire: WireKind::KernelTls, ..source(&host, FsKind::Ext, 1.0) };
        let (names, because) = sent(&facts);
        assert_eq!(names, ["sendfile", "read-write"]);
        assert!(because.ends_with("sendfile moves it without passing user space"), "{because}");
    }

    #[test]
    fn rdma_endpoints_have_an_engine_of_their_own_whatever_is_sent() {
        let host = host();
        let wire = WireKind::Fabric;
        for share in [0.0, 1.0] {
            let facts = SendFacts { wire, digest: true, ..source(&host, FsKind::Ext, share) };
            let choice = send_engine(&facts).unwrap();
            let names: Vec<_> = choice.candidates.iter().map(|engine| engine.name).collect();
            assert_eq!(names, ["fabric"]);
            assert_eq!(
                choice.because,
                "the wire is a pair of RDMA endpoints, so fabric sends the pages of the page \
                 cache; the digest reads the page cache beside it"
            );
        }
        let facts = ReceiveFacts { wire, digest: true, ..target(&host, FsKind::Ext) };
        assert_eq!(
            receive_engine(&facts).unwrap().because,
            "the wire is a pair of RDMA endpoints, so fabric writes the registered memory that it \
             comes into"
        );
        let forced =
            SendFacts { wire, forced: Some("sendfile"), ..source(&host, FsKind::Ext, 1.0) };
        assert_eq!(
            send_engine(&forced).unwrap_err().to_string(),
            "engine sendfile not started: needs plain TCP or TLS in the kernel, found RDMA \
             endpoints. Choose --send-engine fabric."
        );
    }

    #[test]
    fn tls_in_this_process_has_an_engine_of_its_own_beside_those_past_the_page_cache() {
        let host = host();
        let wire = WireKind::Tls;
        let facts = SendFacts { wire, digest: true, ..source(&host, FsKind::Ext, 1.0) };
        let choice = send_engine(&facts).unwrap();
        assert_eq!(choice.candidates.iter().map(|one| one.name).collect::<Vec<_>>(), ["tls"]);
        assert_eq!(
            choice.because,
            "the wire is TLS in this process, so tls encrypts it in the buffer that it is read into"
        );
        let facts = ReceiveFacts { wire, digest: true, ..target(&host, FsKind::Tmpfs) };
        assert_eq!(
            receive_engine(&facts).unwrap().because,
            "the wire is TLS in this process, so tls decrypts it in the buffer that it comes into"
        );
        let forced = SendFacts { wire, forced: Some("splice"), ..source(&host, FsKind::Ext, 1.0) };
        let error = send_engine(&forced).unwrap_err().to_string();
        assert!(error.ends_with("found TLS in this process. Choose --send-engine tls."), "{error}");
        let names =
            |choice: Choice| -> Vec<_> { choice.candidates.iter().map(|e| e.name).collect() };
        let past = ["io-uring", "direct", "tls"];
        let cold = SendFacts { wire, ..source(&host, FsKind::Ext, 0.0) };
        let choice = send_engine(&cold).unwrap();
        assert!(choice.because.ends_with("; this process encrypts what was read"), "{choice:?}");
        assert_eq!(names(choice), past);
        let facts = ReceiveFacts { wire, ..target(&host, FsKind::Ext) };
        let choice = receive_engine(&facts).unwrap();
        assert!(choice.because.ends_with("; this process decrypts what comes"), "{choice:?}");
        assert_eq!(names(choice), past);
        let facts = ReceiveFacts { wire, ..target(&host, FsKind::Btrfs) };
        assert_eq!(names(receive_engine(&facts).unwrap()), past[1..]);
        let forced = ReceiveFacts { wire, forced: Some("direct"), ..target(&host, FsKind::Ext) };
        assert_eq!(names(receive_engine(&forced).unwrap()), past[1..]);
    }

    #[test]
    fn the_reason_says_where_a_digest_gets_its_bytes_from() {
        let host = host();
        let facts = SendFacts { digest: true, ..source(&host, FsKind::Ext, 1.0) };
        assert!(sent(&facts).1.ends_with("; the digest reads the page cache beside it"));
        let facts = SendFacts { digest: true, ..source(&host, FsKind::Ext, 0.0) };
        assert!(!sent(&facts).1.contains("digest"), "io-uring sees the bytes itself");
    }

    #[test]
    fn a_null_target_discards() {
        let host = host();
        let facts = ReceiveFacts { target: Target::Null, ..target(&host, FsKind::Ext) };
        let (names, because) = received(&facts);
        assert_eq!(names, ["discard", "read-write"]);
        assert_eq!(because, "the target keeps nothing, so discard throws it away in the socket");
    }

    #[test]
    fn memory_is_spliced_into_unless_a_digest_needs_the_bytes() {
        let host = host();
        let facts = target(&host, FsKind::Tmpfs);
        assert_eq!(received(&facts).0, ["splice", "read-write"]);
        let (names, because) = received(&ReceiveFacts { digest: true, ..facts });
        assert_eq!(names, ["read-write"]);
        assert!(because.contains("the digest needs each byte anyway"), "{because}");
    }

    #[test]
    fn a_large_transfer_to_a_disk_is_written_past_the_page_cache() {
        let host = host();
        for kind in [FsKind::Ext, FsKind::Xfs, FsKind::F2fs] {
            for digest in [false, true] {
                let facts = ReceiveFacts { digest, ..target(&host, kind) };
                let (names, because) = received(&facts);
                assert_eq!(names, ["io-uring", "direct", "dontcache", "read-write"]);
                assert_eq!(
                    because,
                    format!(
                        "4 GiB go to {kind}, so io-uring writes it past the page cache, many \
                         writes at a time"
                    )
                );
            }
        }
    }

    #[test]
    fn the_reason_names_a_disk_that_rotates() {
        let host = host();
        let facts = ReceiveFacts { rotational: Some(true), ..target(&host, FsKind::Xfs) };
        assert!(received(&facts).1.starts_with("4 GiB go to xfs, on a disk that says it rotates"));
    }

    #[test]
    fn what_need_not_be_durable_and_fits_stays_in_the_page_cache() {
        let host = host();
        let facts =
            ReceiveFacts { durable: false, size_bytes: 2 * GIB, ..target(&host, FsKind::Ext) };
        assert_eq!(received(&facts).0, ["splice", "read-write"]);
        assert_eq!(received(&ReceiveFacts { digest: true, ..facts }).0, ["read-write"]);
        let too_large = ReceiveFacts { size_bytes: 2 * GIB + 1, ..facts };
        assert_eq!(received(&too_large).0[0], "io-uring");
        assert_eq!(received(&ReceiveFacts { durable: true, ..facts }).0[0], "io-uring");
    }

    #[test]
    fn btrfs_is_written_by_a_thread_of_its_own() {
        let host = host();
        let (names, because) = received(&target(&host, FsKind::Btrfs));
        assert_eq!(names, ["direct", "read-write"]);
        assert!(because.contains("computes checksums while it writes"), "{because}");
    }

    #[test]
    fn a_source_that_cannot_be_opened_is_not_called_zeros() {
        let host = host();
        let facts = SendFacts { source: Source::Unknown, ..source(&host, FsKind::Ext, 1.0) };
        let (names, because) = sent(&facts);
        assert_eq!(names, ["sendfile", "splice", "read-write"]);
        assert!(because.starts_with("nothing is known of the source"), "{because}");
        assert!(!facts.in_words().contains("zeros"), "{}", facts.in_words());
    }

    #[test]
    fn network_and_layered_file_systems_get_read_write() {
        let host = host();
        for kind in [FsKind::Nfs, FsKind::Fuse, FsKind::Overlay, FsKind::Zfs, FsKind::Other(7)] {
            let (names, because) = received(&target(&host, kind));
            assert_eq!(names, ["read-write"]);
            assert!(because.contains("may not write past the page cache"), "{because}");
        }
    }

    #[test]
    fn a_small_transfer_gets_read_write() {
        let host = host();
        let small = |kind| ReceiveFacts { size_bytes: LARGE_BYTES - 1, ..target(&host, kind) };
        for kind in [FsKind::Tmpfs, FsKind::Btrfs, FsKind::Nfs] {
            let (names, because) = received(&small(kind));
            assert_eq!(names, ["read-write"]);
            assert!(because.starts_with("the transfer is small (64 MiB)"), "{because}");
        }
        // Neither waits for the disk, or is read back from it at once.
        for facts in [
            ReceiveFacts { durable: false, ..small(FsKind::Ext) },
            ReceiveFacts { grows: true, ..small(FsKind::Xfs) },
        ] {
            assert_eq!(received(&facts).0, ["read-write"]);
        }
        let facts = ReceiveFacts { size_bytes: LARGE_BYTES, ..target(&host, FsKind::Ext) };
        assert_eq!(received(&facts).0[0], "io-uring");
    }

    #[test]
    fn a_small_transfer_onto_a_disk_is_written_out_at_once() {
        let host = host();
        for kind in [FsKind::Ext, FsKind::Xfs] {
            let facts = ReceiveFacts { size_bytes: 1 << 20, ..target(&host, kind) };
            let (names, because) = received(&facts);
            assert_eq!(names, ["dontcache", "read-write"]);
            assert!(because.starts_with("the transfer is small (1 MiB)"), "{because}");
        }
    }

    #[test]
    fn an_engine_that_is_asked_for_comes_first_and_read_write_behind_it() {
        let host = host();
        let facts = SendFacts { forced: Some("direct"), ..source(&host, FsKind::Ext, 1.0) };
        let (names, because) = sent(&facts);
        assert_eq!(names, ["direct", "read-write"]);
        assert_eq!(because, "--send-engine direct was asked for");
        let facts = ReceiveFacts { forced: Some("read-write"), ..target(&host, FsKind::Ext) };
        assert_eq!(received(&facts).0, ["read-write"]);
    }

    fn receive_error(facts: &ReceiveFacts<'_>) -> String {
        receive_engine_from(&CATALOGUE, facts).unwrap_err().to_string()
    }

    #[test]
    fn engines_that_nothing_chooses_say_that_they_are_for_studies() {
        let sends = SendCase::ALL.map(SendCase::order);
        let receives = ReceiveCase::ALL.map(ReceiveCase::order);
        for engine in engines::ENGINES {
            let mut orders = sends.iter().chain(&receives);
            let is_chosen = orders.any(|order| order.contains(&engine.name));
            assert_eq!(engine.summary.starts_with("study: "), !is_chosen, "{}", engine.name);
        }
    }

    #[test]
    fn an_unknown_engine_is_answered_with_the_names_of_all() {
        let host = host();
        let facts = SendFacts { forced: Some("warp"), ..source(&host, FsKind::Ext, 1.0) };
        assert_eq!(
            send_engine_from(&CATALOGUE, &facts).unwrap_err().to_string(),
            "engine warp is not known. --send-engine takes one of: read-write, sendfile, splice, \
             direct, io-uring, dontcache, discard."
        );
    }

    #[test]
    fn an_engine_of_the_other_direction_is_answered_with_one_of_this() {
        let host = host();
        let facts = ReceiveFacts { forced: Some("sendfile"), ..target(&host, FsKind::Ext) };
        assert_eq!(
            receive_error(&facts),
            "engine sendfile not started: needs to receive, found that it cannot. \
             Choose --receive-engine io-uring."
        );
    }

    #[test]
    fn an_engine_that_its_probe_refuses_is_answered_with_need_and_finding() {
        let old = Host { kernel: (6, 1), ..host() };
        let facts = ReceiveFacts { forced: Some("dontcache"), ..target(&old, FsKind::Nfs) };
        assert_eq!(
            receive_error(&facts),
            "engine dontcache not started: needs Linux 6.14, found 6.1. \
             Choose --receive-engine read-write."
        );
    }

    #[test]
    fn an_engine_that_does_not_work_over_the_wire_is_answered_with_one_that_does() {
        let host = host();
        let facts = ReceiveFacts {
            forced: Some("splice"),
            wire: WireKind::KernelTls,
            ..target(&host, FsKind::Tmpfs)
        };
        assert_eq!(
            receive_error(&facts),
            "engine splice not started: needs plain TCP, found TLS in the kernel. \
             Choose --receive-engine read-write."
        );
    }

    #[test]
    fn discard_never_gets_a_file_to_lose() {
        let host = host();
        let facts = ReceiveFacts { forced: Some("discard"), ..target(&host, FsKind::Xfs) };
        assert_eq!(
            receive_error(&facts),
            "engine discard not started: it throws the bytes away, needs the target null:, found \
             a file on xfs. Choose --receive-engine io-uring."
        );
        assert_eq!(received(&ReceiveFacts { target: Target::Null, ..facts }).0[0], "discard");
        for case in ReceiveCase::ALL.iter().filter(|case| **case != ReceiveCase::Null) {
            assert!(!case.order().contains(&DISCARD), "{case:?}");
        }
    }

    #[test]
    fn where_no_engine_is_left_the_error_says_why_for_each() {
        const NONE: Catalogue = Catalogue { find: |_| None, names: Vec::new };
        let error = send_engine_from(&NONE, &source(&host(), FsKind::Ext, 1.0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no engine can send here: sendfile is not in this build; splice is not in this \
             build; read-write is not in this build."
        );
    }

    #[test]
    fn every_engine_in_the_tables_exists_and_goes_that_way() {
        for name in SendCase::ALL.iter().flat_map(|case| case.order()) {
            assert!((KNOWN.find)(name).is_some_and(|engine| engine.open_send.is_some()), "{name}");
        }
        for name in ReceiveCase::ALL.iter().flat_map(|case| case.order()) {
            let engine = (KNOWN.find)(name);
            assert!(engine.is_some_and(|engine| engine.open_receive.is_some()), "{name}");
        }
    }

    #[test]
    fn every_order_of_a_socket_ends_in_what_works_everywhere() {
        let send = SendCase::ALL.map(SendCase::order);
        let receive = ReceiveCase::ALL.map(ReceiveCase::order);
        for (orders, alone) in
            [(&send[..], SendCase::Fabric.order()), (&receive, ReceiveCase::Fabric.order())]
        {
            assert_eq!(alone, ["fabric"]);
            for order in orders.iter().filter(|order| **order != alone) {
                assert!(LAST_RESORTS.contains(order.last().unwrap()), "{order:?}");
            }
        }
    }
}
