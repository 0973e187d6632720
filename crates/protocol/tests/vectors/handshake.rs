//! Vectors of whole handshakes, message by message: `vectors/handshake.json`.

use super::{
    decode, encode, examples,
    hex::{hex, unhex},
    list, schema, text, vectors, wire_bytes,
};
use haul_protocol::{ClientHandshake, Message, ServerHandshake, handshake::ServerStep, message};
use serde_json::{Value, json};

const SOFTWARE: &str = "haul 0.1.0";

/// Steps of a conversation: the side that speaks, and the fields of its message.
type Steps = Vec<(&'static str, Value)>;

/// Conversations: a name, the steps in order, and what the client makes of them.
fn conversations() -> Vec<(&'static str, Steps, &'static str)> {
    let mut all = plain_conversations();
    all.extend(conversations_of_told_keys());
    all
}

/// Conversations in which keys are told, or not though they are due.
fn conversations_of_told_keys() -> Vec<(&'static str, Steps, &'static str)> {
    let (hello, reply) = examples::hello_for_told_keys();
    let (exports, exports_reply) = (examples::hello(), examples::hello_reply());
    let opened = examples::opened_telling(96);
    let refusal = |what: &str| {
        let what = format!("the peer broke the protocol: {what}");
        json!({"refused": {"code": "PROTOCOL_VIOLATION", "what": what,
            "hint": "run the same haul version on both ends; if it is, report this"}})
    };
    let untold = refusal("a reply with capability 4, and a session without data keys");
    let unasked = refusal("data keys without capability 4 in the reply");
    let steps = |hello: Value, reply: Value, opened: Value| {
        let open = examples::open();
        vec![("client", hello), ("client", open), ("server", reply), ("server", opened)]
    };
    let told = steps(hello.clone(), reply.clone(), opened.clone());
    let mut not_told = steps(hello, reply, examples::opened());
    not_told.push(("client", untold));
    let mut unasked_for = steps(exports, exports_reply, opened);
    unasked_for.push(("client", unasked));
    vec![
        ("keys are told to a client that exports none", told, "open"),
        ("keys are announced and not told", not_told, "refused"),
        ("keys are told unasked", unasked_for, "refused"),
    ]
}

fn plain_conversations() -> Vec<(&'static str, Steps, &'static str)> {
    let newer = json!({"hello": {"version_min": 1, "version_max": 4, "capabilities": [9],
        "software": "haul 4.0.0"}});
    let other = json!({"hello": {"version_min": 7, "version_max": 9, "software": "haul 9.0.0"}});
    let versions = json!({"refused": {
        "code": "VERSION", "what": "the versions do not meet",
        "needs": "protocol version 1 to 1",
        "found": "a peer that speaks version 7 to 9 (haul 9.0.0)",
        "hint": "install the same haul version on both ends"}});
    let early = json!({"refused": {
        "code": "PROTOCOL_VIOLATION",
        "what": "the peer broke the protocol: a message out of order in the handshake",
        "hint": "run the same haul version on both ends; if it is, report this"}});
    let wrong = json!({"refused": {"code": "TOKEN_WRONG", "what": "the token is not known here"}});
    let (hello, open) = (examples::hello(), examples::open());
    let (reply, opened) = (examples::hello_reply(), examples::opened());
    vec![
        (
            "a session is opened",
            vec![
                ("client", hello.clone()),
                ("client", open.clone()),
                ("server", reply.clone()),
                ("server", opened.clone()),
            ],
            "open",
        ),
        (
            "a newer client meets this server",
            vec![
                ("client", newer),
                ("client", open.clone()),
                ("server", reply.clone()),
                ("server", opened),
            ],
            "open",
        ),
        ("the versions do not meet", vec![("client", other), ("server", versions)], "refused"),
        (
            "the token is wrong",
            vec![("client", hello), ("client", open.clone()), ("server", reply), ("server", wrong)],
            "refused",
        ),
        ("nothing but a hello comes first", vec![("client", open), ("server", early)], "refused"),
    ]
}

/// Answers of the server's machine to the client's messages, but for the owner's last word.
fn server_answers(steps: &[(bool, Message)]) -> Vec<Message> {
    let mut server = ServerHandshake::default();
    let mut answers = Vec::new();
    for (_, message) in steps.iter().filter(|(is_client, _)| *is_client) {
        // The client's last word, behind the handshake.
        if matches!(message, Message::Refused(_)) {
            break;
        }
        match server.handle(message.clone(), SOFTWARE) {
            Ok(ServerStep::Reply(reply)) => answers.push(reply),
            Ok(ServerStep::Open { open, .. }) => {
                assert_eq!(Message::Open(open), *message);
            }
            Err(fault) => {
                answers.push(Message::Refused(fault));
                break;
            }
        }
    }
    answers
}

fn client_ends(steps: &[(bool, Message)]) -> &'static str {
    let hellos = steps.iter().find_map(|(_, message)| match message {
        Message::Hello(hello) => Some(hello.capabilities.clone()),
        _ => None,
    });
    let (capabilities, open) = (hellos.unwrap_or_default(), message::Open::default());
    let (mut client, _) = ClientHandshake::start_listing(&capabilities, SOFTWARE, open);
    let refusal = steps.last().map(|(_, message)| message);
    let mut end = "waits";
    for (_, message) in steps.iter().filter(|(is_client, _)| !is_client) {
        end = match client.handle(message.clone()) {
            Ok(None) => "waits",
            Ok(Some(_)) => "open",
            Err(fault) => {
                let fault = Message::Refused(fault);
                assert_eq!(Some(&fault), refusal, "in the words of the side that refuses");
                "refused"
            }
        };
    }
    end
}

#[test]
fn handshakes_are_what_the_vectors_say() {
    let schema = schema();
    let conversations = conversations().into_iter().map(|(name, steps, end)| {
        let steps = steps.into_iter().map(|(from, fields)| {
            json!({"from": from, "hex": hex(&wire_bytes(&schema, &fields)), "fields": fields})
        });
        json!({"name": name, "steps": steps.collect::<Vec<_>>(), "client": end})
    });
    let about = "Handshakes: client says how it ends for the client, open or refused. A refusal \
        by the client is its last step; the words behind the code are its own.";
    let conversations: Vec<Value> = conversations.collect();
    let found = vectors("handshake.json", &json!({"about": about, "handshakes": conversations}));
    for vector in list(&found, "handshakes") {
        let steps = list(vector, "steps").iter().map(|step| {
            let bytes = unhex(text(step, "hex"));
            let message = decode(&bytes);
            assert_eq!(encode(message.clone()), bytes);
            (text(step, "from") == "client", message)
        });
        let steps: Vec<(bool, Message)> = steps.collect();
        let said = steps.iter().filter(|(is_client, _)| !is_client).map(|(_, message)| message);
        let answers = server_answers(&steps);
        assert!(answers.iter().eq(said.take(answers.len())), "{answers:?}");
        assert_eq!(client_ends(&steps), text(vector, "client"));
    }
}
