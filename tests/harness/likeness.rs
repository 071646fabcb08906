//! Holding what a server said against what a document shows.

use serde_json::Value;

/// Members that differ from server to server and from moment to moment. Their type is compared, their value is not.
const OWN: &[&str] = &[
    "epoch",
    "apiKey",
    "keyId",
    "token",
    "loginId",
    "passwordChangedAt",
    "receivedAt",
    "expiresAt",
    "lastReceivedAt",
    "timestamp",
    "serverReceiveTime",
    "serverSendTime",
    "asOf",
    "at",
    "recordedSince",
    "server",
    "createdAt",
    "firstMessageAt",
    "lastMessageAt",
    "currentRates",
    "uptimeSeconds",
    "now",
    "series",
    "recent",
    "hour",
    "tookMs",
    "from",
    // The examples may be run while an hour begins.
    "hours",
    "hourlyMessageDistribution",
    "latencyMs",
    "bytes",
    "crc32c",
    "sentAt",
    "oldestSentAt",
    "leasedUntil",
    "readyAt",
    "version",
];

/// Where `said` differs from `shown`.
pub(crate) fn differences(shown: &Value, said: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(shown, said, "", &mut found);
    found
}

fn compare(shown: &Value, said: &Value, at: &str, found: &mut Vec<String>) {
    match (shown, said) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) if OWN.contains(&name.as_str()) => {
                        if std::mem::discriminant(a) != std::mem::discriminant(b) {
                            found.push(format!("{at}/{name}: shown {a}, said {b}"));
                        }
                    }
                    (Some(a), Some(b)) => compare(a, b, &format!("{at}/{name}"), found),
                    (a, _) => {
                        let what = if a.is_some() { "shown but not said" } else { "said but not shown" };
                        found.push(format!("{at}/{name}: {what}"));
                    }
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(a, b, &format!("{at}/{index}"), found);
            }
        }
        (Value::String(a), Value::String(b)) if is_plain_time(a) && is_plain_time(b) => {}
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{at}: shown {a}, said {b}")),
    }
}

/// Whether it is a time of the report, `YYYY-MM-DD hh:mm:ss.ffffff`.
pub(super) fn is_plain_time(text: &str) -> bool {
    let like = |(shown, said): (u8, u8)| if shown == b'0' { said.is_ascii_digit() } else { said == shown };
    text.len() == 26 && "0000-00-00 00:00:00.000000".bytes().zip(text.bytes()).all(like)
}
