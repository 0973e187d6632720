//! Check that the bytes on the wire are those in `vectors/`.
//!
//! Every client language's tests read the same files.
//!
//! `HAUL_WRITE_VECTORS=1 cargo test -p haul-protocol --test vectors` writes the files anew. The
//! messages are encoded twice: by the generated code, and from `proto/haul.proto` by `schema.rs`.

#[allow(dead_code)]
#[path = "../../../../fuzz/src/bodies/mod.rs"]
mod bodies;

mod bad_peers;
mod bounds;
mod examples;
mod frames;
mod handshake;
mod hex;
mod machines;
mod schema;

use haul_protocol::{Message, decode_message, encode_message, limits, name::check_relative_name};
use hex::{hex, unhex};
use schema::Schema;
use serde_json::{Value, json};
use std::{fs, path::PathBuf};

fn schema() -> Schema {
    Schema::parse(include_str!("../../proto/haul.proto"))
}

/// Count of the outer lists and objects whose items have a line each.
#[derive(Clone, Copy)]
struct Depth(usize);

/// Compares the file that is there with the one that is to be, and returns it.
fn vectors(file: &str, expected: &Value) -> Value {
    vectors_of_depth(file, expected, Depth(usize::MAX))
}

fn vectors_of_depth(file: &str, expected: &Value, depth: Depth) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors").join(file);
    if std::env::var_os("HAUL_WRITE_VECTORS").is_some_and(|value| value == "1") {
        let mut text = String::new();
        print(expected, depth, 0, &mut text);
        fs::write(&path, text + "\n").expect("a writable vectors directory");
        println!("written: {}", path.display());
    }
    let text = fs::read_to_string(&path).expect("HAUL_WRITE_VECTORS=1 writes it");
    let found: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(&found, expected, "{file} is not what this build says");
    found
}

/// Prints as `serde_json` does prettily, but what lies deeper than `depth` on one line.
fn print(value: &Value, depth: Depth, indent: usize, text: &mut String) {
    let (open, items, close) = match value {
        Value::Array(items) => ('[', items.iter().map(|item| (None, item)).collect(), ']'),
        Value::Object(items) => {
            ('{', items.iter().map(|(key, item)| (Some(key), item)).collect(), '}')
        }
        _ => ('"', Vec::new(), '"'),
    };
    if items.is_empty() || depth.0 == 0 {
        *text += &value.to_string();
        return;
    }
    text.push(open);
    for (at, (key, item)) in items.into_iter().enumerate() {
        *text += if at == 0 { "\n" } else { ",\n" };
        *text += &"  ".repeat(indent + 1);
        if let Some(key) = key {
            *text += &format!("{}: ", json!(key));
        }
        print(item, Depth(depth.0 - 1), indent + 1, text);
    }
    text.push('\n');
    *text += &"  ".repeat(indent);
    text.push(close);
}

/// Encodes a message as it goes over the wire, from its fields by the schema alone.
fn wire_bytes(schema: &Schema, fields: &Value) -> Vec<u8> {
    let body = schema.encode("Control", fields);
    let len = u32::try_from(body.len()).expect("short");
    [&len.to_le_bytes()[..], &body].concat()
}

fn decode(bytes: &[u8]) -> Message {
    let decoded = decode_message(bytes, limits::MESSAGE_BYTES_MAX);
    let (message, taken) = decoded.expect("a good message").expect("a whole message");
    assert_eq!(taken, bytes.len());
    message
}

fn encode(message: Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_message(message, &mut bytes);
    bytes
}

fn kind_of(fields: &Value) -> String {
    fields.as_object().and_then(|fields| fields.keys().next()).expect("a kind").clone()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is text in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is a list"))
}

fn bad_messages(schema: &Schema) -> Vec<Value> {
    let bad = examples::bad_messages().into_iter();
    let mut bad: Vec<(&str, Vec<u8>)> =
        bad.map(|(name, fields)| (name, wire_bytes(schema, &fields))).collect();
    bad.push(("no kind", vec![0, 0, 0, 0]));
    bad.push(("a kind of a later version", vec![3, 0, 0, 0, 0xa2, 0x06, 0]));
    bad.push(("longer than any message may be", vec![1, 0, 16, 0]));
    bad.push(("a field that is cut off", vec![2, 0, 0, 0, 0x0a, 5]));
    bad.push(("a field of no wire type", vec![2, 0, 0, 0, 0x0f, 0]));
    let reasoned = bad.into_iter().map(|(name, bytes)| {
        let result = decode_message(&bytes, limits::MESSAGE_BYTES_MAX);
        let error = result.err().unwrap_or_else(|| panic!("{name} is refused"));
        json!({"name": name, "hex": hex(&bytes), "reason": error.what})
    });
    reasoned.collect()
}

#[test]
fn messages_are_what_the_vectors_say() {
    let schema = schema();
    let good: Vec<Value> = examples::messages()
        .into_iter()
        .map(|(name, fields)| {
            let bytes = wire_bytes(&schema, &fields);
            json!({"name": name, "kind": kind_of(&fields), "hex": hex(&bytes), "fields": fields})
        })
        .collect();
    let about = "Control messages: hex is the length and the protobuf. Of fields, bytes are hex, \
        enums are names, and what is absent has its default. A receiver refuses the bad ones.";
    let expected = json!({"about": about, "messages": good, "bad": bad_messages(&schema)});
    let found = vectors("messages.json", &expected);
    for vector in list(&found, "messages") {
        let bytes = unhex(text(vector, "hex"));
        assert_eq!(schema.decode("Control", &bytes[4..]), vector["fields"], "by the schema");
        assert_eq!(wire_bytes(&schema, &vector["fields"]), bytes, "by the schema");
        assert_eq!(hex(&encode(decode(&bytes))), hex(&bytes), "by the generated code");
    }
}

#[test]
fn the_vectors_hold_every_kind_of_message_and_every_field() {
    let schema = schema();
    let all: String = examples::messages().iter().map(|(_, fields)| fields.to_string()).collect();
    assert_eq!(schema.messages["Control"].len(), 32);
    for (message, fields) in &schema.messages {
        for field in fields {
            let key = format!("\"{}\":", field.name);
            assert!(all.contains(&key), "no vector holds {message}.{}", field.name);
        }
    }
}

#[test]
fn names_are_what_the_vectors_say() {
    let (good, bad) = examples::names();
    let bad = bad.iter().map(|name| {
        let reason = check_relative_name(name).expect_err("a bad name");
        json!({"hex": hex(name), "reason": reason})
    });
    let about =
        "Names below a target, as hex. The bad ones are refused, whatever the reason is called.";
    let expected = json!({
        "about": about,
        "good": good.iter().map(|name| hex(name)).collect::<Vec<_>>(),
        "bad": bad.collect::<Vec<_>>(),
    });
    let found = vectors("names.json", &expected);
    for name in list(&found, "good") {
        assert_eq!(check_relative_name(&unhex(name.as_str().expect("hex"))), Ok(()), "{name}");
    }
}
