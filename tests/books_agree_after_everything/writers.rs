//! Who writes to rooms, and the ledger of what was acknowledged to whom.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hyper::Method;
use serde_json::{Value, json};

use super::world::{World, below};
use crate::harness::{Dialect, Writer};

/// Most messages a socket sends in one go.
const BURST_MAX: u64 = 20;

/// The `seq` of each message that was acknowledged, in the order they were sent; `None` behind a broker.
type Acked = Vec<Option<u64>>;

/// What was acknowledged, by room and sender.
#[derive(Default)]
pub(super) struct Ledger(Mutex<BTreeMap<(String, String), Acked>>);

impl Ledger {
    fn add(&self, room: &str, sender: &str, seq: Option<u64>) {
        let mut ledger = self.0.lock().unwrap();
        ledger.entry((room.to_owned(), sender.to_owned())).or_default().push(seq);
    }

    /// What each sender was told in a room.
    pub(super) fn of(&self, room: &str) -> BTreeMap<String, Acked> {
        let ledger = self.0.lock().unwrap();
        let of_room = ledger.iter().filter(|((name, _), _)| name == room);
        of_room.map(|((_, sender), seqs)| (sender.clone(), seqs.clone())).collect()
    }
}

/// Writes in bursts over sockets, a new one for each burst.
pub(super) async fn write(
    world: Arc<World>,
    ledger: Arc<Ledger>,
    room: &'static str,
    dialect: Dialect,
    window: usize,
) {
    let random = world.random();
    let name = if dialect == Dialect::Chat { "chat" } else { "api" };
    let mut writer = Writer::new(&format!("{name}{window}"), room, dialect, window);
    if world.has_broker {
        writer = writer.through_outages();
    }
    let mut counted = 0;
    while let Some(_turn) = world.turn(&random).await {
        let mut left = 1 + below(&random, BURST_MAX);
        let mut is_enough = |_: &Writer| {
            let is_enough = left == 0;
            left = left.saturating_sub(1);
            is_enough
        };
        while writer.run(world.address, &mut is_enough).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        for acked in &writer.acked[counted..] {
            ledger.add(room, &writer.name, acked.seq);
        }
        counted = writer.acked.len();
    }
}

/// Sends one message after another over HTTP, and now and then an old one again, which must change nothing.
pub(super) async fn post(world: Arc<World>, ledger: Arc<Ledger>, room: &'static str, bytes: usize) {
    let (random, mut client) = (world.random(), world.client());
    let name = format!("post.{room}");
    let path = format!("/v1/rooms/{room}/messages");
    let padding = "x".repeat(bytes);
    let message = |number: u64| {
        json!({"userId": name, "message": format!("{name}-{number} {padding}"), "messageId": format!("{name}-{number}")})
            .to_string()
    };
    let mut seqs = Acked::new();
    while let Some(_turn) = world.turn(&random).await {
        let number = seqs.len() as u64;
        let answer = client.request_again(Method::POST, &path, &message(number)).await;
        assert!(matches!(answer.status, 200..=202), "{room}: {}", answer.text());
        let seq = answer.json()["seq"].as_u64();
        assert_eq!(seq.is_none(), world.has_broker, "{}", answer.text());
        seqs.push(seq);
        ledger.add(room, &name, seq);
        // Retention would make it a new one.
        if room == super::BRIEF || below(&random, 10) != 0 {
            continue;
        }
        let old = below(&random, number + 1);
        let again = client.request_again(Method::POST, &path, &message(old)).await;
        if world.has_broker {
            assert_eq!(again.status, 202, "{}", again.text());
        } else {
            let known = json!(seqs[usize::try_from(old).unwrap()]);
            let told: Value = again.json();
            assert_eq!(
                (again.status, &told["duplicate"], &told["seq"]),
                (200, &json!(true), &known),
                "{told}"
            );
        }
    }
}
