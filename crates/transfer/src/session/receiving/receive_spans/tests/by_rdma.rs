//! Tests of a receiving stream over RDMA endpoints: what is damaged, and what comes too late.

use super::*;
use crate::{
    session::{
        rdma::{self, Opening, Part, Route},
        receiving::with_sender::DataStream,
    },
    transport::waker::Waker,
};
use haul_datapath::{FabricEnd, Wire};
use haul_fabric::{Fabric, Provider, SendEnd};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpStream};

const PROVIDERS: [Provider; 2] = [Provider::Tcp, Provider::Shm];
const MIB: u64 = 1 << 20;

fn setup(provider: Provider, part: Part) -> StreamSetup {
    let fabric = Fabric::open(provider, IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("it is here");
    let fabric = Opening::opened(fabric);
    let rdma = Some(Route { fabric, part, tcp_instead: None });
    StreamSetup { rdma, ..StreamSetup::of_nobody() }
}

fn begin(provider: Provider, hear: &mut dyn FnMut(crate::events::Event)) -> Begun<'_> {
    let setup = setup(provider, Part::Listens);
    without_peer::begin_with(TargetPlace::Null, without_peer::options(), setup, hear)
}

/// Runs a receiving stream beside the sender's end of its pair, and gives that a handle of the
/// receiver's lifeline.
fn run_by_rdma(
    (begun, provider, number): (&Begun<'_>, Provider, u32),
    send: impl FnOnce(&mut DataStream, SendEnd, &TcpStream),
) -> Ran {
    let shared = begun.context.shared.clone();
    let (mut ours, theirs) = DataStream::open(number, &shared.setup);
    let lifeline = theirs.try_clone().expect("it works here");
    lock(&shared.machine).stream_opened(ours.stream).expect("it works here");
    let figures = Arc::new(Lock::new(StreamFigures::default()));
    let (stream, of_thread) = (ours.stream, figures.clone());
    let thread = thread::spawn(move || {
        run(&shared, stream, theirs.into(), &Chosen::last_resort(), &of_thread)
    });
    let (streams, setup) =
        (Streams::new(Waker::new().expect("it works here")), setup(provider, Part::Connects));
    let (setup, figures_of_sender) = (&setup, Lock::new(StreamFigures::default()));
    let of = Stream { streams: &streams, setup, stream, figures: &figures_of_sender };
    let socket = ours.socket.try_clone().expect("it works here").into();
    let (wire, _) = rdma::wire(&of, socket, Way::Sends, (&[], &[])).expect("it works here");
    let Wire::Fabric(end) = wire else { panic!("{wire:?}") };
    let FabricEnd::Sends(end) = *end else { panic!("{end:?}") };
    send(&mut ours, end, &lifeline);
    let ended = thread.join().expect("it works here");
    let figures = lock(&figures).clone();
    (ended, figures)
}

/// Sends a span as senders do: its payload begins a message.
fn send_span(end: &mut SendEnd, span: &[u8], payload_bytes: usize) {
    let (header, rest) = span.split_at(HEADER_BYTES);
    let (payload, trailer) = rest.split_at(payload_bytes.min(rest.len()));
    for part in [header, payload, trailer] {
        // A pair that has broken is what some tests are about.
        let _ = end.send(part).and_then(|()| end.flush());
    }
}

#[test]
fn a_bit_that_was_flipped_on_the_way_is_found_and_its_span_asked_for_again() {
    for provider in PROVIDERS {
        let mut hear = |_| {};
        let begun = begin(provider, &mut hear);
        let (to, payload) = (file(), bytes(2 * SPAN));
        expect(&begun, 0, (2 * SPAN, SPAN), &to);
        let (first, second) = payload.split_at(SPAN as usize);
        let (ended, figures) = run_by_rdma((&begun, provider, 0), |stream, mut end, _| {
            let mut flipped = stream.span(0, SPAN, second, WHOLE);
            flipped[HEADER_BYTES + 777] ^= 4;
            let good = stream.span(0, 0, first, WHOLE);
            for span in [&flipped, &good] {
                send_span(&mut end, span, SPAN as usize);
            }
            end.send(&stream.end_of(stream.stream)).unwrap();
        });
        ended.unwrap();
        let (ended, _) = run_by_rdma((&begun, provider, 1), |stream, mut end, _| {
            let again = stream.span(0, SPAN, second, WHOLE);
            send_span(&mut end, &again, SPAN as usize);
            end.send(&stream.end_of(stream.stream)).unwrap();
        });
        ended.unwrap();
        let verified = vec![(0, 0), (0, 1)];
        assert_eq!(heard(&begun), Heard { verified, bad: vec![(0, 1)] }, "{provider}");
        assert_eq!(content_of(&to), payload, "{provider}");
        assert_eq!(figures.rdma.unwrap().provider, provider.name());
    }
}

/// Case of a stream that is cut while the disk still writes what came on it.
#[test]
fn what_a_lost_stream_brings_late_lands_in_no_span_that_another_has_taken_over() {
    for provider in PROVIDERS {
        for (round, sent_bytes) in [MIB, 3 * MIB, 2 * MIB + 5000, 65_537].into_iter().enumerate() {
            let mut hear = |_| {};
            let begun = begin(provider, &mut hear);
            let (to, right) = (file(), bytes(4 * MIB));
            expect(&begun, 0, (4 * MIB, 4 * MIB), &to);
            let wrong = vec![0xee; 4 * MIB as usize];
            let (ended, lost) = run_by_rdma((&begun, provider, 0), |stream, mut end, lifeline| {
                let mut span = stream.span(0, 0, &wrong, WHOLE);
                // Should all of it come, it is not believed.
                *span.last_mut().unwrap() ^= 1;
                let came = HEADER_BYTES + sent_bytes as usize;
                send_span(&mut end, &span[..came], sent_bytes as usize);
                // As the session cuts a stream, with writes of it under way.
                lifeline.shutdown(Shutdown::Both).unwrap();
                let _ = end.send(&span[came..]).and_then(|()| end.flush());
            });
            let case = format!("{provider} {round}: {ended:?}");
            assert!(ended.is_err(), "{case}");
            lock(&begun.context.shared.machine).stream_closed(StreamId(0));
            let (ended, _) = run_by_rdma((&begun, provider, 1), |stream, mut end, _| {
                let span = stream.span(0, 0, &right, WHOLE);
                send_span(&mut end, &span, right.len());
                end.send(&stream.end_of(stream.stream)).unwrap();
            });
            ended.unwrap();
            thread::sleep(Duration::from_millis(30));
            assert_eq!(heard(&begun).verified, [(0, 0)], "{case}");
            let content = content_of(&to);
            let at = content.iter().zip(&right).position(|(one, other)| one != other);
            assert_eq!((content.len(), at), (right.len(), None), "{case}");
            println!("{case} {:?}", lost.rdma.map(|rdma| rdma.figures.direct_bytes));
        }
    }
}
