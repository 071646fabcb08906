//! JSON Schema, as much of it as the server's documents use. A keyword that is not known is a failure, so that none is
//! believed to be checked that is not.

use serde_json::{Map, Value};

use super::likeness::is_plain_time;

/// Whether members that the schema does not list are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// In what clients send.
    Allowed,
    /// In what the server says: a member nobody documented is a fault of the document.
    Refused,
}

/// Schemas that may refer to each other within one document.
pub(crate) struct Schemas<'a> {
    pub(crate) document: &'a Value,
    pub(crate) unknown: Unknown,
}

const ID_PATTERN: &str = "^[A-Za-z0-9_.:@-]{1,64}$";

/// The pattern of times in the report.
const PLAIN_TIME_PATTERN: &str = r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{6}$";

impl Schemas<'_> {
    /// What is wrong with `value`, with the place of each fault.
    pub(crate) fn faults(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        self.check(schema, value, "", &mut faults);
        faults
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        let keywords = schema.as_object().unwrap_or_else(|| panic!("no schema: {schema}"));
        for (keyword, rule) in keywords {
            let is_met = match keyword.as_str() {
                "$ref" => {
                    let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                    let target = self.document.pointer(pointer).unwrap_or_else(|| panic!("no {rule}"));
                    self.check(target, value, at, faults);
                    true
                }
                "anyOf" => {
                    let tries: Vec<_> =
                        rule.as_array().unwrap().iter().map(|one| self.faults(one, value)).collect();
                    if !tries.iter().any(Vec::is_empty) {
                        faults.push(format!("{at}: none of {tries:?}"));
                    }
                    true
                }
                "type" => match rule {
                    Value::Array(kinds) => kinds.iter().any(|kind| is_of(value, kind.as_str().unwrap())),
                    kind => is_of(value, kind.as_str().unwrap()),
                },
                "properties" => {
                    self.check_members(keywords, value, at, faults);
                    true
                }
                "required" => {
                    let names = rule.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                    names.filter(|name| value.is_object() && value.get(name).is_none()).for_each(|name| {
                        faults.push(format!("{at}/{name} is missing"));
                    });
                    true
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, item, &format!("{at}/{index}"), faults);
                    }
                    true
                }
                "const" => value == rule,
                "enum" => rule.as_array().unwrap().contains(value),
                "pattern" => {
                    let fits = match rule.as_str().unwrap() {
                        ID_PATTERN => is_id,
                        PLAIN_TIME_PATTERN => is_plain_time,
                        other => panic!("this validator does not know the pattern {other}"),
                    };
                    value.as_str().is_none_or(fits)
                }
                "format" => value.as_str().is_none_or(|text| has_format(text, rule.as_str().unwrap())),
                "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
                "minLength" => value.as_str().is_none_or(|text| text.chars().count() >= length(rule)),
                "maxItems" => value.as_array().is_none_or(|items| items.len() <= length(rule)),
                "maxLength" => value.as_str().is_none_or(|text| text.chars().count() <= length(rule)),
                "additionalProperties" | "description" | "default" => true,
                extension if extension.starts_with("x-") => true,
                other => panic!("this validator does not know {other}"),
            };
            if !is_met {
                faults.push(format!("{at}: {value} breaks {keyword} {rule}"));
            }
        }
    }

    fn check_members(
        &self,
        keywords: &Map<String, Value>,
        value: &Value,
        at: &str,
        faults: &mut Vec<String>,
    ) {
        let known = keywords["properties"].as_object().unwrap();
        for (name, member) in value.as_object().into_iter().flatten() {
            match (known.get(name), keywords.get("additionalProperties")) {
                (Some(schema), _) | (None, Some(schema @ Value::Object(_))) => {
                    self.check(schema, member, &format!("{at}/{name}"), faults);
                }
                (None, Some(Value::Bool(true))) => {}
                (None, _) if self.unknown == Unknown::Allowed => {}
                (None, _) => faults.push(format!("{at}/{name} is not documented")),
            }
        }
    }
}

fn length(rule: &Value) -> usize {
    usize::try_from(rule.as_u64().unwrap()).unwrap()
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("there is no type {other}"),
    }
}

fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:@-".contains(&byte))
}

fn has_format(text: &str, format: &str) -> bool {
    match format {
        // Everything the server writes is UTC.
        "date-time" => {
            let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            let fraction = shape.strip_prefix("0000-00-00T00:00:00").and_then(|rest| rest.strip_suffix('Z'));
            fraction.is_some_and(|f| f.is_empty() || (f.starts_with('.') && f[1..].chars().all(|c| c == '0')))
        }
        "uri" => text.contains(':'),
        other => panic!("this validator does not know the format {other}"),
    }
}

#[test]
fn faults_are_found() {
    let document = serde_json::json!({"a": {"type": "object", "required": ["n"], "properties": {
        "n": {"type": ["integer", "null"], "minimum": 1}, "t": {"type": "string", "format": "date-time"},
        "l": {"type": "array", "items": {"anyOf": [{"const": "x"}, {"enum": ["y", "z"]}]}},
    }}});
    let schemas = Schemas { document: &document, unknown: Unknown::Refused };
    let faults = |value: Value| schemas.faults(&serde_json::json!({"$ref": "#/a"}), &value).len();
    assert_eq!(faults(serde_json::json!({"n": 1, "t": "2026-01-31T12:00:00.5Z", "l": ["x", "z"]})), 0);
    for wrong in [
        serde_json::json!({}),
        serde_json::json!([]),
        serde_json::json!({"n": 0}),
        serde_json::json!({"n": "1"}),
        serde_json::json!({"n": 1, "t": "2026-01-31 12:00"}),
        serde_json::json!({"n": 1, "l": ["x", "q"]}),
        serde_json::json!({"n": 1, "more": true}),
    ] {
        assert_eq!(faults(wrong.clone()), 1, "{wrong}");
    }
}
