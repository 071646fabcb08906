//! The ledger of a run: nothing may be lost between what was sent, what was answered and what the server counted.

use serde::Serialize;

use crate::client::Targets;
use crate::load::run::Run;
use crate::workloads::engine::Account;
use crate::workloads::kv::KeyLedger;
use crate::workloads::queue::QueueLedger;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ServerCounts {
    pub accepted: u64,
    pub stored: u64,
    pub duplicate: u64,
    pub delivered: u64,
    pub rejected: u64,
    /// Messages the store holds; unlike the counters this outlives a restart.
    pub held: u64,
    /// It counts what it holds at once, as a server with files of its own does. Databases are asked now and then.
    #[serde(skip)]
    pub is_exact: bool,
    /// The counters began anew in the meantime.
    pub restarted: bool,
}

impl ServerCounts {
    /// Asks the servers, whose counters are added; `None` when one does not count, as the bare servers do not.
    pub(crate) async fn ask(targets: &Targets) -> Option<Self> {
        let counts = Self::parse(&targets.metrics().await.ok()?)?;
        // Whether several servers hold the same messages is not known.
        Some(if targets.len() > 1 { Self { held: 0, is_exact: false, ..counts } } else { counts })
    }

    fn parse(metrics: &str) -> Option<Self> {
        Some(Self {
            accepted: sum(metrics, "hubbub_messages_accepted_total")?,
            stored: sum(metrics, "hubbub_messages_stored_total")?,
            duplicate: sum(metrics, "hubbub_messages_duplicate_total").unwrap_or(0),
            delivered: sum(metrics, "hubbub_messages_delivered_total").unwrap_or(0),
            rejected: sum(metrics, "hubbub_messages_rejected_total").unwrap_or(0),
            held: sum(metrics, "hubbub_store_messages").unwrap_or(0),
            is_exact: sum(metrics, "hubbub_store_disk_bytes").is_some_and(|bytes| bytes > 0),
            restarted: false,
        })
    }

    /// What was counted since `earlier`. After a restart only what the store holds tells how much was stored.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let held = self.held.saturating_sub(earlier.held);
        let stored = self.stored.saturating_sub(earlier.stored);
        let restarted = self.accepted < earlier.accepted || held > stored;
        Self {
            accepted: self.accepted.saturating_sub(earlier.accepted),
            stored: if restarted { held } else { stored },
            duplicate: self.duplicate.saturating_sub(earlier.duplicate),
            delivered: self.delivered.saturating_sub(earlier.delivered),
            rejected: self.rejected.saturating_sub(earlier.rejected),
            held,
            is_exact: self.is_exact && earlier.is_exact,
            restarted,
        }
    }
}

/// The sum over all labels of a counter in Prometheus text, in whole numbers.
pub(crate) fn sum(metrics: &str, name: &str) -> Option<u64> {
    exact_sum(metrics, name).map(|sum| sum as u64)
}

/// The sum over all labels of a counter in Prometheus text.
pub(crate) fn exact_sum(metrics: &str, name: &str) -> Option<f64> {
    values_of(metrics, name).reduce(|all, value| all + value)
}

/// The values of a metric in Prometheus text, for each label and server.
pub(crate) fn values_of<'m>(metrics: &'m str, name: &'m str) -> impl Iterator<Item = f64> + 'm {
    metrics.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let rest = if rest.starts_with('{') { rest.split_once('}')?.1 } else { rest };
        rest.strip_prefix(' ')?.split(' ').next()?.parse().ok()
    })
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Ledger {
    /// Messages sent, each once however often it was retried.
    pub sent: u64,
    pub accepted: u64,
    pub rejected: u64,
    /// No answer after all retries; they may be stored.
    pub unconfirmed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<QueueLedger>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<KeyLedger>,
    pub faults: Vec<String>,
}

impl Ledger {
    /// The ledger of some phases, with the server's counters before and after them, and with what only some workloads have.
    pub(crate) fn of(
        runs: &[&Run],
        server: Option<(ServerCounts, ServerCounts)>,
        Account { delivery, queues, keys, stored, .. }: &Account,
    ) -> Self {
        let totals = runs.iter().map(|run| run.counts.totals());
        let [sent, accepted, rejected, unconfirmed] = totals.fold([0; 4], |mut all, run| {
            all.iter_mut().zip(run).for_each(|(all, count)| *all += count);
            all
        });
        let received = delivery.as_ref().map(|delivery| delivery.delivered);
        let server = server.map(|(before, after)| after.since(&before));
        let (queues, keys) = (queues.clone(), keys.clone());
        Self { sent, accepted, rejected, unconfirmed, received, server, queues, keys, faults: Vec::new() }
            .close(*stored)
    }

    /// Compares the counts of both sides, where the server says itself how many messages it `stored`, or where that is known
    /// otherwise. Other clients of the same server show as faults.
    fn close(mut self, stored: Option<u64>) -> Self {
        let ended = self.accepted + self.rejected + self.unconfirmed;
        if self.sent != ended {
            self.faults.push(format!("sent {} but {ended} came to an end", self.sent));
        }
        let Self { accepted, unconfirmed, .. } = self;
        // A message may have been stored before its answer was lost, and be a duplicate when it is sent again.
        let is_wrong = |stored: &u64| *stored < accepted || *stored > accepted + unconfirmed;
        if let Some(stored) = self.server.map(|server| server.stored).or(stored).filter(is_wrong) {
            let fault = format!("{accepted} accepted and {unconfirmed} unconfirmed, but {stored} stored");
            self.faults.push(fault);
        }
        if let Some(server) = self.server {
            let (stored, duplicate) = (server.stored, server.duplicate);
            let uncounted = |received: &u64| !server.restarted && *received > server.delivered;
            if let Some(received) = self.received.filter(uncounted) {
                self.faults.push(format!("{received} received, but {} delivered", server.delivered));
            }
            let held = server.held;
            if server.is_exact && !server.restarted && held < stored {
                self.faults.push(format!("{stored} stored, but the store holds only {held} more"));
            }
            if !server.restarted && server.accepted != stored + duplicate {
                let accepted = server.accepted;
                self.faults.push(format!(
                    "the server accepted {accepted}, but stored {stored} + {duplicate} duplicates"
                ));
            }
        }
        self.faults.extend(self.queues.iter().flat_map(QueueLedger::faults));
        self.faults.extend(self.keys.iter().flat_map(KeyLedger::faults));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_their_labels() {
        let text = "# HELP x y\nhubbub_messages_accepted_total 5\nhubbub_messages_stored_total 4\n\
                    hubbub_messages_rejected_total{reason=\"a b\"} 1\nhubbub_messages_rejected_total{reason=\"c\"} 2\n\
                    hubbub_messages_stored_total_other 9\n";
        let counts = ServerCounts::parse(text).expect("counters");
        assert_eq!((counts.accepted, counts.stored, counts.rejected), (5, 4, 3));
        assert_eq!(ServerCounts::parse("nothing"), None);
    }

    #[test]
    fn a_ledger_that_balances_has_no_fault() {
        let server = |stored| Some(ServerCounts { accepted: stored, stored, ..Default::default() });
        let ledger = Ledger { sent: 10, accepted: 8, rejected: 1, unconfirmed: 1, ..Default::default() };
        for (stored, faults) in [(8, 0), (9, 0), (7, 1), (10, 1)] {
            let ledger = Ledger { server: server(stored), ..ledger.clone() };
            assert_eq!(ledger.close(None).faults.len(), faults, "{stored} stored");
        }
        let before = ServerCounts { accepted: 50, stored: 50, held: 50, ..Default::default() };
        let after = ServerCounts { accepted: 3, stored: 3, held: 59, ..Default::default() };
        let restarted = Ledger { server: Some(after.since(&before)), ..ledger.clone() }.close(None);
        assert!(restarted.faults.is_empty(), "9 stored over a restart: {:?}", restarted.faults);
        let received = Ledger { received: Some(1), server: server(8), ..ledger.clone() };
        assert_eq!(received.close(None).faults, ["1 received, but 0 delivered"]);
        assert_eq!(Ledger { sent: 11, ..ledger.clone() }.close(None).faults.len(), 1);
        assert_eq!(ledger.close(Some(7)).faults.len(), 1, "stored, as somebody else counted it");
    }

    #[test]
    fn a_store_holds_what_it_said_it_stored() {
        let text = |messages: u64, held: u64, disk_bytes: u64| {
            ServerCounts::parse(&format!(
                "hubbub_messages_accepted_total {messages}\nhubbub_messages_stored_total {messages}\n\
                 hubbub_store_messages {held}\nhubbub_store_disk_bytes {disk_bytes}\n"
            ))
            .unwrap()
        };
        let faults = |after: ServerCounts, before: ServerCounts| {
            let server = Some(after.since(&before));
            Ledger { sent: 8, accepted: 8, server, ..Ledger::default() }.close(None).faults
        };
        assert_eq!(faults(text(13, 28, 1), text(5, 20, 1)), [""; 0]);
        assert_eq!(faults(text(13, 27, 1), text(5, 20, 1)), ["8 stored, but the store holds only 7 more"]);
        assert_eq!(faults(text(13, 20, 0), text(5, 20, 0)), [""; 0], "a database counts later");
    }
}
