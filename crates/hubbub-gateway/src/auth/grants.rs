//! What a token or an API key allows: patterns of rooms and queues, prefixes of keys, scopes.
//!
//! Deny by default: what is not granted is refused. What cannot be read refuses the whole token, because a pattern that was
//! read wrongly could grant too much.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::parse_key_prefix;

/// Patterns of each kind that one token or key may have.
const PATTERNS_MAX: usize = 256;

/// What may be done with a room, a queue or a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// `r`: history, following, who is there; taking from a queue; values of keys.
    Read = 1,
    /// `w`: sending, and changing keys.
    Write = 2,
    /// `m`: a room's settings and other people's membership, and deleting it; the rules for members apply as well.
    Manage = 4,
}

/// A set of [`Right`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Rights(u8);

impl Rights {
    fn parse(text: &str, known: &str) -> Option<Self> {
        let mut rights = 0;
        for letter in text.chars() {
            let right = match letter {
                'r' => Right::Read,
                'w' => Right::Write,
                'm' => Right::Manage,
                _ => return None,
            };
            if !known.contains(letter) || rights & right as u8 > 0 {
                return None;
            }
            rights |= right as u8;
        }
        (rights > 0).then_some(Self(rights))
    }

    fn has(self, right: Right) -> bool {
        self.0 & right as u8 > 0
    }
}

/// Parts of the service that are for administrators unless a token has their name in `scopes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Scope {
    /// Everybody's statistics.
    Stats = 1,
    /// Metrics for Prometheus.
    Metrics = 2,
    /// The state of each component in `/health`.
    Health = 4,
    /// Copying the whole store.
    Backup = 8,
    /// The names of all clients of queues.
    Clients = 16,
}

impl Scope {
    const ALL: [Self; 5] = [Self::Stats, Self::Metrics, Self::Health, Self::Backup, Self::Clients];
}

/// What a caller may do. In tokens these are claims beside `sub` and `exp`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GrantsText {
    /// Everything, in anybody's name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// Rights by room, or by the beginning of its name and `*`: `{"team-*": "rw"}`. `r` = read, `w` = send, `m` = manage.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rooms: BTreeMap<String, String>,
    /// Rights by queue, or by the beginning of its name and `*`: `r` = take, `w` = send.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, String>,
    /// Rights by prefix of keys, written as keys are; `""` = all keys. `r` = read, `w` = change.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kv: BTreeMap<String, String>,
    /// Parts of the service that are otherwise for administrators.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Scope>,
}

/// The same, ready to be compared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Grants {
    pub(crate) is_admin: bool,
    rooms: Vec<Pattern>,
    queues: Vec<Pattern>,
    keys: Vec<(Box<[u8]>, Rights)>,
    scopes: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: Box<str>,
    /// Whether longer names match too.
    is_prefix: bool,
    rights: Rights,
}

impl Pattern {
    fn matches(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&*self.text) } else { *self.text == *name }
    }

    fn is_everything(&self) -> bool {
        self.is_prefix && self.text.is_empty()
    }
}

impl GrantsText {
    /// Compiles the patterns; the error names the claim and its rule.
    pub(crate) fn parse(&self) -> Result<Grants, String> {
        let mut keys = Vec::new();
        bounded("kv", &self.kv)?;
        for (prefix, rights) in &self.kv {
            // A star would be meant as in the other claims, but it is a byte that keys may have.
            let bytes = parse_key_prefix(prefix).filter(|_| !prefix.ends_with('*'));
            let bytes = bytes.ok_or_else(|| {
                format!(
                    "kv: '{prefix}' must be the beginning of keys, without a star at its end; \"\" = all keys"
                )
            })?;
            let rights =
                Rights::parse(rights, "rw").ok_or_else(|| format!("kv: '{prefix}' must have r, w or rw"))?;
            keys.push((bytes.into(), rights));
        }
        Ok(Grants {
            is_admin: self.admin,
            rooms: patterns("rooms", &self.rooms, "rwm")?,
            queues: patterns("queues", &self.queues, "rw")?,
            keys,
            scopes: self.scopes.iter().fold(0, |scopes, scope| scopes | *scope as u8),
        })
    }
}

fn bounded(claim: &str, given: &BTreeMap<String, String>) -> Result<(), String> {
    let is_fine = given.len() <= PATTERNS_MAX;
    is_fine.then_some(()).ok_or_else(|| format!("{claim}: must have at most {PATTERNS_MAX} entries"))
}

fn patterns(claim: &str, given: &BTreeMap<String, String>, known: &str) -> Result<Vec<Pattern>, String> {
    bounded(claim, given)?;
    let parse = |(name, rights): (&String, &String)| {
        let (text, is_prefix) = name.strip_suffix('*').map_or((&**name, false), |start| (start, true));
        if text.contains('*') || (text.is_empty() && !is_prefix) {
            return Err(format!("{claim}: '{name}' must be a name, or the beginning of names and one star"));
        }
        let rights = Rights::parse(rights, known)
            .ok_or_else(|| format!("{claim}: '{name}' must have letters of {known}, each at most once"))?;
        Ok(Pattern { text: text.into(), is_prefix, rights })
    };
    given.iter().map(parse).collect()
}

impl Grants {
    /// Of somebody who named himself where nobody has to prove anything, and of users whom an administrator stands for.
    pub(crate) fn of_any_user() -> Self {
        let everything = |rights| Pattern { text: "".into(), is_prefix: true, rights: Rights(rights) };
        Self {
            is_admin: false,
            rooms: vec![everything(7)],
            queues: vec![everything(3)],
            keys: vec![(Box::default(), Rights(3))],
            scopes: Scope::Metrics as u8 | Scope::Health as u8 | Scope::Clients as u8,
        }
    }

    pub(crate) fn administrator() -> Self {
        Self { is_admin: true, ..Self::default() }
    }

    pub(crate) fn has_room(&self, right: Right, room: &str) -> bool {
        self.rooms.iter().any(|pattern| pattern.rights.has(right) && pattern.matches(room))
    }

    pub(crate) fn has_all_rooms(&self, right: Right) -> bool {
        self.rooms.iter().any(|pattern| pattern.rights.has(right) && pattern.is_everything())
    }

    pub(crate) fn has_queue(&self, right: Right, queue: &str) -> bool {
        self.queues.iter().any(|pattern| pattern.rights.has(right) && pattern.matches(queue))
    }

    pub(crate) fn has_all_queues(&self, right: Right) -> bool {
        self.queues.iter().any(|pattern| pattern.rights.has(right) && pattern.is_everything())
    }

    pub(crate) fn has_some_queue(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Whether all keys that begin with `prefix` are granted; so also whether this very key is.
    pub(crate) fn has_keys(&self, right: Right, prefix: &[u8]) -> bool {
        self.keys.iter().any(|(start, rights)| rights.has(right) && prefix.starts_with(start))
    }

    pub(crate) fn has_scope(&self, scope: Scope) -> bool {
        self.scopes & scope as u8 > 0
    }

    /// The scopes, for people who ask what they may.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        Scope::ALL.into_iter().filter(|scope| self.has_scope(*scope)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(claims: serde_json::Value) -> Result<Grants, String> {
        serde_json::from_value::<GrantsText>(claims).map_err(|error| error.to_string())?.parse()
    }

    #[test]
    fn patterns_match_whole_names_or_beginnings() {
        let grants = parse(json!({"rooms": {"team-*": "rw", "lobby": "r"}, "queues": {"*": "w"}})).unwrap();
        assert!(grants.has_room(Right::Read, "team-1") && grants.has_room(Right::Write, "team-"));
        assert!(grants.has_room(Right::Read, "lobby") && !grants.has_room(Right::Write, "lobby"));
        for room in ["team", "lobby2", "Team-1", "xteam-1", "", "*", "team%2D1"] {
            assert!(!grants.has_room(Right::Read, room), "{room}");
        }
        assert!(!grants.has_room(Right::Manage, "team-1") && !grants.has_all_rooms(Right::Read));
        assert!(grants.has_all_queues(Right::Write) && !grants.has_queue(Right::Read, "jobs"));
        assert!(!grants.has_keys(Right::Read, b"") && !grants.has_keys(Right::Read, b"a"));
    }

    #[test]
    fn rights_of_all_matching_patterns_add_up() {
        let grants = parse(json!({"rooms": {"*": "r", "team-*": "w", "team-1": "m"}})).unwrap();
        assert!(
            [Right::Read, Right::Write, Right::Manage].iter().all(|right| grants.has_room(*right, "team-1"))
        );
        assert!(!grants.has_room(Right::Manage, "team-12") && grants.has_all_rooms(Right::Read));
    }

    #[test]
    fn a_list_of_keys_needs_a_grant_for_all_of_it() {
        let grants = parse(json!({"kv": {"config/": "r", "a%20b": "rw"}})).unwrap();
        assert!(grants.has_keys(Right::Read, b"config/x") && grants.has_keys(Right::Read, b"config/"));
        for prefix in [&b"config"[..], b"", b"a", b"a%20b"] {
            assert!(!grants.has_keys(Right::Read, prefix), "{prefix:?}");
        }
        assert!(grants.has_keys(Right::Write, b"a b") && !grants.has_keys(Right::Write, b"config/x"));
        assert!(parse(json!({"kv": {"": "r"}})).unwrap().has_keys(Right::Read, b""));
    }

    #[test]
    fn what_cannot_be_read_grants_nothing() {
        for claims in [
            json!({"rooms": {"a*b": "r"}}),
            json!({"rooms": {"**": "r"}}),
            json!({"rooms": {"": "r"}}),
            json!({"rooms": {"a": ""}}),
            json!({"rooms": {"a": "x"}}),
            json!({"rooms": {"a": "rr"}}),
            json!({"rooms": {"a": "R"}}),
            json!({"rooms": {"a": true}}),
            json!({"rooms": "*"}),
            json!({"queues": {"a": "m"}}),
            json!({"kv": {"*": "r"}}),
            json!({"kv": {"config/*": "r"}}),
            json!({"kv": {"%zz": "r"}}),
            json!({"kv": {"a": "m"}}),
            json!({"admin": "yes"}),
            json!({"scopes": ["everything"]}),
            json!({"scopes": "stats"}),
        ] {
            assert!(parse(claims.clone()).is_err(), "{claims}");
        }
        let many: BTreeMap<String, String> = (0..257).map(|i| (format!("r{i}"), "r".to_owned())).collect();
        assert!(parse(json!({"rooms": many})).unwrap_err().contains("at most 256"));
        assert_eq!(parse(json!({})).unwrap(), Grants::default());
    }
}
