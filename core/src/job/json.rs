//! JSON as every face reads it from outside.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A JSON value in which no object, at any depth, has a key twice (RFC 8259 §4 leaves the meaning of such open).
#[derive(Debug, Clone, PartialEq)]
pub struct UniqueJson(pub Value);

impl<'de> Deserialize<'de> for UniqueJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = UniqueJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<UniqueJson, E> {
        Ok(UniqueJson(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<UniqueJson, E> {
        Ok(UniqueJson(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<UniqueJson, E> {
        Ok(UniqueJson(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<UniqueJson, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("number is not finite"))?;
        Ok(UniqueJson(number.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<UniqueJson, E> {
        Ok(UniqueJson(value.into()))
    }

    fn visit_unit<E>(self) -> Result<UniqueJson, E> {
        Ok(UniqueJson(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<UniqueJson, A::Error> {
        let mut values = Vec::new();
        while let Some(UniqueJson(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(UniqueJson(values.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueJson, A::Error> {
        let mut object = Map::new();
        while let Some((key, UniqueJson(value))) = map.next_entry::<String, UniqueJson>()? {
            if object.contains_key(&key) {
                return Err(de::Error::custom(format!("duplicate key {key:?}")));
            }
            object.insert(key, value);
        }
        Ok(UniqueJson(object.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_be_there_once_in_each_object() {
        let read = |text: &str| serde_json::from_str(text).map(|UniqueJson(value)| value);
        for text in [r#"{"a": 1, "a": 1}"#, r#"[{"b": {"a": 1, "\u0061": 2}}]"#] {
            assert!(read(text).unwrap_err().to_string().contains("duplicate key \"a\""), "{text}");
        }
        let text = r#"{"a": [1, -2, 2.5, 1e6, true, null, "x"], "b": {"a": {}}}"#;
        assert_eq!(read(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }
}
