//! Sending role without a peer, for tests of its stages and streams: the test is the receiver.

use super::{
    Sending,
    context::Context,
    giving::Giving,
    send_spans,
    sources::Sources,
    start::{Begun, SendingOptions},
};
use crate::{
    connecting::ConnectOptions,
    file_options::FileOptions,
    locks::lock,
    options::SourceSpec,
    session::{
        headway::Headway,
        moved_earlier::MovedEarlier,
        role::{EventSink, Pumped, Role},
        streams::{StreamSetup, Streams},
        supply::{Source, Supply},
        tally::OfferLimits,
    },
    storage::{
        named_sources::walk_named,
        source::SourceEntry,
        walk::{Listed, Walk, WalkOptions},
    },
    transport::{tcp::Route, waker::Waker},
};
use haul_protocol::{
    FileId, Message, StreamId, limits,
    message::{Answer, FileAnswer, FileConfirm, FileKind, FileOffer, Need},
};
use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Least length of a span.
pub(super) const SPAN_BYTES: u64 = limits::SPAN_BYTES_MIN;
/// Time within which what other threads do is done, on the slowest of hosts.
const SOON: Duration = Duration::from_secs(60);

/// Entries of a path's walk, in the order of their names.
pub(super) fn entries(path: &Path) -> Vec<SourceEntry> {
    let entry = |listed| match listed {
        Listed::Entry(entry) => *entry,
        other => panic!("{other:?}"),
    };
    let sources = [SourceSpec::Path(path.to_path_buf().into())];
    let mut entries: Vec<_> = walk_named(&sources, WalkOptions::default()).map(entry).collect();
    entries.sort_by(|one, two| one.offer.name.cmp(&two.offer.name));
    entries
}

/// Regular files of a directory, named as they are there, in the order of their names.
pub(super) fn files(directory: &Path) -> Vec<SourceEntry> {
    // With a slash behind it a directory is no part of the names.
    let mut entries = entries(&directory.join(""));
    entries.retain(|entry| entry.offer.kind == FileKind::Regular);
    entries
}

/// Options of a role whose peer never stalls.
pub(super) fn options(file_options: FileOptions) -> SendingOptions {
    SendingOptions {
        giving: Giving::Files,
        offers: OfferLimits { files: 100, bytes: 1 << 20 },
        stall_after: Duration::from_secs(60),
        engine: None,
        span_bytes: None,
        file_options,
        written: Default::default(),
        manifest: None,
        moved_earlier: MovedEarlier::default(),
    }
}

/// Begins a role that has no sources of its own and is given no connections.
pub(super) fn begin(file_options: FileOptions, events: EventSink<'_>) -> Begun<'_> {
    let sources = Sources::Listed(Box::new(Walk::new([], WalkOptions::default())));
    let (streams, source) = (streams(), nobody());
    options(file_options).begin(&sources, StreamSetup::of_nobody(), streams, source, events)
}

/// Begins a role that sends these sources, with these options, and is given no connections.
pub(super) fn sending<'a>(
    sources: Walk,
    options: SendingOptions,
    events: EventSink<'a>,
) -> Sending<'a> {
    let sources = Sources::Listed(Box::new(sources));
    Sending::new(sources, StreamSetup::of_nobody(), streams(), nobody(), options, events)
}

/// Walk through what is in a directory.
pub(super) fn walk_in(directory: &Path, options: WalkOptions) -> Walk {
    walk_named(&[SourceSpec::Path(directory.join("").into())], options)
}

/// Source of a client's connections to a server that nobody has.
pub(super) fn client(retry_for: Duration) -> (Source, Arc<Headway>) {
    let headway = Arc::new(Headway::new(retry_for, SPAN_BYTES));
    let route = Arc::new(
        Route::new("127.0.0.1:1".into(), ConnectOptions::default()).expect("no collectors"),
    );
    (Source::Connect { route, count: 0, early: None, headway: headway.clone() }, headway)
}

/// Lets a role be a client's.
pub(super) fn become_client(sending: &mut Sending<'_>) {
    let streams = sending.context.shared.streams.clone();
    let (source, _) = client(SOON);
    sending.streams.supply = Supply::new(source, streams, StreamSetup::of_nobody());
}

/// Does what is due, and gives the messages for the receiver.
pub(super) fn pumped(sending: &mut Sending<'_>, now: Instant) -> Vec<Message> {
    let pumped = sending.pump(now).expect("nothing is at fault");
    assert!(matches!(pumped, Pumped::GoOn), "{pumped:?}");
    std::iter::from_fn(|| sending.poll_message()).collect()
}

/// Offers among messages.
pub(super) fn offers(messages: &[Message]) -> Vec<&FileOffer> {
    let offers = messages.iter().filter_map(|message| match message {
        Message::FileOffer(offer) => Some(offer),
        _ => None,
    });
    offers.collect()
}

fn streams() -> Arc<Streams> {
    Streams::new(Waker::new().expect("a waker"))
}

fn nobody() -> Source {
    Source::Attach(mpsc::channel().1)
}

/// Takes a message of the receiver.
pub(super) fn hear(context: &Context<'_>, message: Message) {
    lock(&context.shared.machine).handle(message).expect("an honest message");
}

/// Takes the receiver's answer to an offer.
pub(super) fn answer(context: &Context<'_>, file: FileId, answer: Answer) {
    hear(context, Message::FileAnswer(FileAnswer { file, answer }));
}

/// Offers a source, of which the receiver needs what the answer says.
pub(super) fn needed(context: &Context<'_>, entry: SourceEntry, need: Need) -> FileId {
    let file = lock(&context.shared.machine).offer(entry.offer.clone());
    lock(&context.shared.sources).insert(file, send_spans::Source::new(entry));
    answer(context, file, Answer::Need(need));
    file
}

/// Messages for the receiver since the last call.
pub(super) fn said(context: &Context<'_>) -> Vec<Message> {
    let mut machine = lock(&context.shared.machine);
    std::iter::from_fn(|| machine.poll_message()).collect()
}

/// Confirmations for the receiver since the last call; other messages are dropped.
pub(super) fn confirmed(context: &Context<'_>) -> Vec<FileConfirm> {
    let confirm = |message| match message {
        Message::FileConfirm(confirm) => Some(confirm),
        _ => None,
    };
    said(context).into_iter().filter_map(confirm).collect()
}

/// Two ends of a connection.
pub(super) fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a way");
    (near, listener.accept().expect("a connection").0)
}

/// Opens a stream whose thread does nothing until the session is over, and gives both ends.
pub(super) fn open_stream(context: &Context<'_>, stream: StreamId) -> (TcpStream, TcpStream) {
    let (near, far) = connection();
    let seen = near.try_clone().expect("the same socket");
    lock(&context.shared.machine).stream_opened(stream).expect("a new stream");
    let streams = context.shared.streams.clone();
    assert_eq!(streams.next_id(), stream, "they are opened in order");
    let before = streams.open_count();
    let all = streams.clone();
    let idle = move || wait_until("over", || all.stopping());
    streams.spawn(
        stream,
        move || Ok(near),
        move |_, _| {
            idle();
            Ok(())
        },
    );
    wait_until("open", || streams.open_count() > before);
    (seen, far)
}

/// Waits for other threads.
pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < deadline, "never {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
