//! Holding what a server said against what a document shows.

use serde_json::Value;

/// Members that differ from server to server and from moment to moment. Their type is compared, their value is not.
const OWN: &[&str] = &[
    "epoch",
    "receivedAt",
    "expiresAt",
    "lastReceivedAt",
    "timestamp",
    "serverReceiveTime",
    "serverSendTime",
    "asOf",
    "createdAt",
    "firstMessageAt",
    "lastMessageAt",
    "generatedAt",
    "currentRates",
    "uptimeSeconds",
    "tookMs",
    "from",
    // The examples may be run while an hour begins.
    "hours",
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
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{at}: shown {a}, said {b}")),
    }
}
