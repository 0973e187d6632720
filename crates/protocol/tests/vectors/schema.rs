//! Protobuf codec made of `proto/haul.proto` alone, without the generated code.
//!
//! It knows what that file uses: messages, enums, oneofs, and the scalars of [`Schema::scalar`].
//! As JSON, bytes are hexadecimal text, enums their names, and absent fields have their default.

use super::hex::{hex, unhex};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    pub kind: String,
    number: u64,
    pub is_repeated: bool,
}

#[derive(Debug, Default)]
pub struct Schema {
    pub messages: BTreeMap<String, Vec<Field>>,
    enums: BTreeMap<String, BTreeMap<String, u64>>,
}

const VARINT: u64 = 0;
const BYTES: u64 = 2;

impl Schema {
    pub fn parse(text: &str) -> Self {
        let mut schema = Self::default();
        let mut open: Vec<(String, String)> = Vec::new();
        for line in text.lines() {
            let line = line.split("//").next().unwrap_or_default().trim();
            let words: Vec<&str> = line.trim_end_matches(';').split_whitespace().collect();
            match words.as_slice() {
                // For makers of code in other languages: no byte on the wire depends on it.
                ["option", ..] => {}
                ["message", name, "{}"] => drop(schema.messages.insert((*name).into(), vec![])),
                [kind, name, "{"] => open.push(((*kind).into(), (*name).into())),
                ["}"] => drop(open.pop()),
                [name, "=", number] if open.last().is_some_and(|open| open.0 == "enum") => {
                    let values = schema.enums.entry(open[0].1.clone()).or_default();
                    values.insert((*name).into(), number.parse().expect("a number"));
                }
                ["repeated", kind, name, "=", number] => {
                    schema.add(&open, field(kind, name, number, true));
                }
                [kind, name, "=", number] => schema.add(&open, field(kind, name, number, false)),
                _ => {}
            }
        }
        schema
    }

    fn add(&mut self, open: &[(String, String)], field: Field) {
        self.messages.entry(open[0].1.clone()).or_default().push(field);
    }

    pub fn encode(&self, message: &str, value: &Value) -> Vec<u8> {
        let given = value.as_object().unwrap_or_else(|| panic!("{message} is an object"));
        let fields = &self.messages[message];
        for name in given.keys() {
            assert!(fields.iter().any(|field| field.name == *name), "{message} has no {name}");
        }
        let mut bytes = Vec::new();
        for field in fields {
            let Some(value) = given.get(&field.name) else { continue };
            match value.as_array().filter(|_| field.is_repeated) {
                None => self.encode_field(field, value, &mut bytes),
                Some(items) if self.is_varint(&field.kind) => {
                    let mut packed = Vec::new();
                    items.iter().for_each(|item| put(&mut packed, self.number(field, item)));
                    put_bytes(&mut bytes, field, &packed);
                }
                Some(items) => {
                    items.iter().for_each(|item| self.encode_field(field, item, &mut bytes));
                }
            }
        }
        bytes
    }

    fn encode_field(&self, field: &Field, value: &Value, bytes: &mut Vec<u8>) {
        if self.is_varint(&field.kind) {
            put(bytes, field.number << 3 | VARINT);
            put(bytes, self.number(field, value));
        } else {
            let body = match (field.kind.as_str(), value.as_str()) {
                ("bytes", Some(text)) => unhex(text),
                ("string", Some(text)) => text.into(),
                _ => self.encode(&field.kind, value),
            };
            put_bytes(bytes, field, &body);
        }
    }

    fn is_varint(&self, kind: &str) -> bool {
        matches!(kind, "uint32" | "uint64" | "int64" | "bool") || self.enums.contains_key(kind)
    }

    fn number(&self, field: &Field, value: &Value) -> u64 {
        match value {
            Value::Bool(flag) => u64::from(*flag),
            Value::String(name) => self.enums[&field.kind][name],
            // Negative numbers go out as 64 bits of two's complement.
            number => number.as_u64().or_else(|| number.as_i64().map(|n| n as u64)).expect("whole"),
        }
    }

    pub fn decode(&self, message: &str, mut bytes: &[u8]) -> Value {
        let mut found = Map::new();
        while !bytes.is_empty() {
            let key = take(&mut bytes);
            let fields = self.messages[message].iter();
            let field = fields.clone().find(|field| field.number == key >> 3);
            let field = field.unwrap_or_else(|| panic!("{message} has no field {}", key >> 3));
            if key & 7 == VARINT {
                found.insert(field.name.clone(), self.scalar(&field.kind, take(&mut bytes)));
                continue;
            }
            assert_eq!(key & 7, BYTES, "{message}.{}", field.name);
            let len = take(&mut bytes) as usize;
            let (body, rest) = bytes.split_at(len);
            bytes = rest;
            self.found(field, body, &mut found);
        }
        Value::Object(found)
    }

    fn found(&self, field: &Field, mut body: &[u8], found: &mut Map<String, Value>) {
        let mut items = Vec::new();
        match field.kind.as_str() {
            "bytes" => items.push(hex(body).into()),
            "string" => items.push(std::str::from_utf8(body).expect("text").into()),
            kind if self.is_varint(kind) => {
                while !body.is_empty() {
                    items.push(self.scalar(kind, take(&mut body)));
                }
            }
            kind => items.push(self.decode(kind, body)),
        }
        if field.is_repeated {
            let list = found.entry(field.name.clone()).or_insert_with(|| Value::Array(vec![]));
            list.as_array_mut().expect("a list").extend(items);
        } else {
            found.insert(field.name.clone(), items.remove(0));
        }
    }

    fn scalar(&self, kind: &str, number: u64) -> Value {
        match kind {
            "bool" => Value::Bool(number != 0),
            "int64" => (number as i64).into(),
            "uint32" | "uint64" => number.into(),
            of => {
                let mut names = self.enums[of].iter();
                let name = names.find(|(_, value)| **value == number);
                name.map_or_else(|| number.into(), |(name, _)| name.as_str().into())
            }
        }
    }
}

fn field(kind: &str, name: &str, number: &str, is_repeated: bool) -> Field {
    let number = number.parse().expect("a field's number");
    Field { name: name.into(), kind: kind.into(), number, is_repeated }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_bytes(bytes: &mut Vec<u8>, field: &Field, body: &[u8]) {
    put(bytes, field.number << 3 | BYTES);
    put(bytes, body.len() as u64);
    bytes.extend_from_slice(body);
}

fn take(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a number");
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
    }
    panic!("a number of more than 64 bits");
}
