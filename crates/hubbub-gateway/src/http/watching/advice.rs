//! How each component is, in words, and what to do about it. The remedies are those of `docs/operations.md` and
//! `docs/alerts.md`, in short.

use hubbub_core::invariant::broken_invariants;
use hubbub_core::store::StoreHealth;
use hubbub_core::text::counted;
use hubbub_pipeline::LogHealth;
use schemars::JsonSchema;
use serde::Serialize;

use crate::Gateway;
use crate::http::health::explain;
use crate::http::store_read::StoreRead;

/// Full journal slots from which on the disk falls behind; with a fourth, writes are refused.
const UNSEALED_MAX: u64 = 3;
/// Operations that wait, and messages in the broker, from which on more arrives than is stored.
const WAITING_MAX: i64 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
enum Level {
    Up,
    // It works, but somebody should look.
    Degraded,
    Down,
}

/// A component in words.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct ComponentState {
    component: &'static str,
    status: Level,
    summary: String,
    /// What to do; missing where there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
}

impl ComponentState {
    fn up(component: &'static str, summary: impl Into<String>) -> Self {
        Self { component, status: Level::Up, summary: summary.into(), remedy: None }
    }

    fn degraded(component: &'static str, summary: impl Into<String>, remedy: &'static str) -> Self {
        Self { component, status: Level::Degraded, summary: summary.into(), remedy: Some(remedy) }
    }

    fn down(component: &'static str, summary: impl Into<String>, remedy: &'static str) -> Self {
        Self { component, status: Level::Down, summary: summary.into(), remedy: Some(remedy) }
    }
}

/// All components, after a small read of the store.
pub(super) fn of(gateway: &Gateway, read: StoreRead) -> Vec<ComponentState> {
    let mut all = vec![store(gateway, read), log(gateway.log.health()), writing(gateway), delivery(gateway)];
    if gateway.store.has_queues_and_keys() {
        all.push(queues(gateway));
    }
    all.extend([connections(gateway), clock(gateway)]);
    if let Some(tls) = &gateway.tls {
        all.push(match tls.fault() {
            None => ComponentState::up("TLS", "The certificate in the files is in use."),
            Some(reason) => ComponentState::degraded(
                "TLS",
                reason,
                "Correct the files of the certificate; the server reads them again by itself. Until then it uses the one \
                 it has.",
            ),
        });
    }
    if let Some(fault) = gateway.auth.fault() {
        let remedy =
            "Revoke again what was revoked, and make the API keys anew; or restore the store from a backup.";
        all.push(ComponentState::degraded("Authentication", fault, remedy));
    }
    all.push(software());
    all
}

fn store(gateway: &Gateway, read: StoreRead) -> ComponentState {
    const NAME: &str = "Store";
    let StoreRead { latency_ms, fault: read_fault } = read;
    match gateway.store.health() {
        StoreHealth::Up => {}
        StoreHealth::Alarm(reason) => {
            let remedy = "Reads and writes go on. Look at the server's log, and at docs/alerts.md.";
            return ComponentState::degraded(NAME, reason, remedy);
        }
        StoreHealth::DiskFull(reason) => {
            return ComponentState::down(
                NAME,
                explain(gateway, reason),
                "Free space on the disk. Writes go on by themselves then.",
            );
        }
        StoreHealth::Failed(reason) => {
            let remedy = "Check the disk, then restart the server; if a newer program goes on with the database, replace this one by it. What was \
                 acknowledged is stored; reads go on.";
            return ComponentState::down(NAME, reason, remedy);
        }
        StoreHealth::Unreachable(reason) => {
            let remedy = "See whether the database runs and can be reached from here, or whether the disk answers. The server goes on by itself then.";
            return ComponentState::down(NAME, explain(gateway, reason), remedy);
        }
    }
    if let Some(fault) = read_fault {
        return ComponentState::down(
            NAME,
            explain(gateway, format!("A small read failed: {fault}")),
            "Look at the server's log.",
        );
    }
    let figures = gateway.store.figures();
    let away = |figures: Vec<hubbub_core::replica::ReplicaFigures>| {
        figures.into_iter().find_map(|one| Some((one.place, one.fault?)))
    };
    if figures.unsealed_slots >= UNSEALED_MAX {
        let summary = format!("{} full journal slots are not sealed.", figures.unsealed_slots);
        let remedy = "Messages arrive faster than the disk takes them. See what else uses it, such as a backup; use a faster \
                    disk, or send less.";
        return ComponentState::degraded(NAME, summary, remedy);
    }
    if let Some((place, fault)) = gateway.store.replicas().and_then(|replicas| away(replicas.replicas())) {
        let summary = format!("The replica {place} is not used: {fault}");
        return ComponentState::degraded(
            NAME,
            summary,
            "Look at the replica. Until then the primary answers its reads.",
        );
    }
    ComponentState::up(NAME, format!("Reads and writes. A small read took {latency_ms} ms."))
}

fn log(log: LogHealth) -> ComponentState {
    const NAME: &str = "Log";
    if let Some(fault) = log.fault {
        let remedy =
            "See whether the broker runs, and can be reached from here. The server connects again by itself.";
        return ComponentState::down(NAME, fault, remedy);
    }
    if let Some(alarm) = log.alarm {
        let remedy = "What is accepted waits in the broker. Look at the server's log, and at docs/alerts.md: \
                    HubbubNoCommitter, HubbubPartitionsWithoutCommitter and HubbubPartitionFaults.";
        return ComponentState::degraded(NAME, alarm, remedy);
    }
    let Some(depth) = log.depth else {
        return ComponentState::up(NAME, "Messages go straight to the store; there is no broker.");
    };
    let summary = format!("{depth} messages wait in the broker ({}).", log.kind);
    if i64::try_from(depth).is_ok_and(|depth| depth <= WAITING_MAX) {
        return ComponentState::up(NAME, summary);
    }
    let remedy = "If the store refuses writes, mend that first. Else the store is slower than the senders: see \u{201c}Time \
                per stage\u{201d}. The backlog shrinks by itself when less arrives.";
    ComponentState::degraded(NAME, summary, remedy)
}

fn writing(gateway: &Gateway) -> ComponentState {
    const NAME: &str = "Writing";
    let waiting = gateway.metrics.waiting.get();
    let last_minute = |code: &str| gateway.statistics.trends.in_last_minute(code);
    let refused: f64 = ["refused.overloaded", "refused.unavailable", "refused.disk_full", "refused.internal"]
        .into_iter()
        .map(last_minute)
        .sum();
    let unconfirmed = last_minute("unconfirmed");
    if refused >= 1.0 {
        let summary =
            format!("{refused:.0} operations were refused in the last minute for a cause on this side.");
        let remedy = "\u{201c}Refusals\u{201d} has the reasons. Overloaded: more arrives than the store commits; see who sends \
                    more than before, use a faster disk, or several servers on PostgreSQL.";
        return ComponentState::degraded(NAME, summary, remedy);
    }
    if unconfirmed >= 1.0 {
        let summary = format!("{unconfirmed:.0} messages of the last minute may or may not be stored.");
        let remedy = "Nothing is lost if senders repeat them with the same ids. The log names the cause, mostly a database \
                    or broker that was restarted.";
        return ComponentState::degraded(NAME, summary, remedy);
    }
    if waiting > WAITING_MAX {
        let remedy =
            "More arrives than the store commits. Beyond pipeline.queue_operations, operations are refused.";
        return ComponentState::degraded(NAME, format!("{waiting} operations wait for their batch."), remedy);
    }
    ComponentState::up(NAME, format!("{} operations wait for their batch.", waiting.max(0)))
}

fn delivery(gateway: &Gateway) -> ComponentState {
    const NAME: &str = "Delivery";
    let last_minute = |name: &str| gateway.statistics.trends.in_last_minute(name);
    let (slow, evicted) = (last_minute("slowReaders"), last_minute("liveEvictions"));
    if evicted >= 1.0 {
        let summary = format!(
            "{evicted:.0} backlogs of subscribers were given up in the last minute: live messages took too much memory."
        );
        let remedy =
            "Those subscribers read from the store instead. Raise live.memory, or lower limits.outbox_bytes.";
        return ComponentState::degraded(NAME, summary, remedy);
    }
    if slow >= 1.0 {
        let summary =
            format!("{slow:.0} subscribers were cut in the last minute because they read too slowly.");
        let remedy = "They resume where they were, so nothing is lost. If it goes on, look at the network to them; if it is \
                    one client, let it follow fewer rooms.";
        return ComponentState::degraded(NAME, summary, remedy);
    }
    let subscriptions = gateway.metrics.subscriptions.get();
    ComponentState::up(NAME, format!("{}, all in time.", counted(subscriptions, "live subscription")))
}

fn queues(gateway: &Gateway) -> ComponentState {
    const NAME: &str = "Queues";
    let dead = gateway.statistics.trends.in_last_minute("queueDead");
    if dead >= 1.0 {
        let summary = format!(
            "{} went to dead-letter queues in the last minute.",
            counted(format_args!("{dead:.0}"), "message")
        );
        let remedy = "Consumers gave them up. `hubbub queue` shows them, and sends them again once the cause is mended.";
        return ComponentState::degraded(NAME, summary, remedy);
    }
    let waiting = gateway.store.figures().queue_messages;
    ComponentState::up(NAME, format!("{} in queues.", counted(waiting, "message")))
}

fn connections(gateway: &Gateway) -> ComponentState {
    const NAME: &str = "Connections";
    let refused = gateway.statistics.trends.in_last_minute("connectionsRefused");
    if refused >= 1.0 {
        let summary =
            format!("Refused in the last minute: {}.", counted(format_args!("{refused:.0}"), "connection"));
        let remedy = "Find the client that does not close its connections, or raise server.connections and the limit of \
                    open files.";
        return ComponentState::degraded(NAME, summary, remedy);
    }
    let (open, most) = (gateway.metrics.connections.get(), gateway.server.connections);
    ComponentState::up(NAME, format!("{open} of at most {most} are open."))
}

fn clock(gateway: &Gateway) -> ComponentState {
    const NAME: &str = "Clock";
    match gateway.clock.anomaly().or_else(|| gateway.store.clock_anomaly()) {
        None => ComponentState::up(NAME, "The wall clock is believed."),
        Some(anomaly) => ComponentState::degraded(
            NAME,
            anomaly.to_string(),
            "Look at the machine's clock and at NTP. Messages go on; nothing is deleted for its age meanwhile.",
        ),
    }
}

fn software() -> ComponentState {
    const NAME: &str = "Hubbub itself";
    match broken_invariants() {
        0 => ComponentState::up(NAME, format!("Version {}; no broken invariant.", env!("CARGO_PKG_VERSION"))),
        count => ComponentState::degraded(
            NAME,
            format!("{count} broken invariants since the start: bugs of Hubbub."),
            "Nothing wrong was stored. Please report it with the server's log, which names each.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_stores_is_not_fine() {
        let level = |fault: Option<&str>, alarm: Option<&str>, depth| {
            let [fault, alarm] = [fault, alarm].map(|reason| reason.map(str::to_owned));
            let said = log(LogHealth { kind: "kafka", bus: "kafka", fault, alarm, depth, lag_us: None });
            (said.status, said.summary)
        };
        let nobody = "no server stores what Kafka has";
        assert_eq!(level(None, Some(nobody), Some(0)), (Level::Degraded, nobody.to_owned()));
        assert_eq!(level(Some("away"), Some(nobody), Some(0)), (Level::Down, "away".to_owned()));
        assert_eq!(level(None, None, Some(3)).0, Level::Up);
        assert_eq!(level(None, None, Some(10_001)).0, Level::Degraded);
        assert_eq!(level(None, None, None).0, Level::Up);
    }
}
