//! Random sequences of sending, subscribing, going away, killing, restarting and resuming: what each subscriber saw is
//! the room's history from where it began, without a gap, a repeat, or a change of order.
//!
//! `SEQUENCE_SEED=17` replays one sequence, `SEQUENCES=1000` runs more.

use hubbub_core::RandomSource;
use hubbub_core::clock::SeededRandom;
use serde_json::{Value, json};

use crate::harness::{Dialect, Follower, Server, Writer, number, until};

const SEQUENCES: u64 = 12;
const STEPS: u64 = 30;
const FOLLOWERS_MAX: usize = 4;

struct Sequence {
    random: SeededRandom,
    server: Server,
    writer: Writer,
    followers: Vec<(Follower, usize)>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_sequence_is_gapless() {
    let seeds = match number("SEQUENCE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEQUENCES").unwrap_or(SEQUENCES),
    };
    for seed in seeds {
        println!("replay with SEQUENCE_SEED={seed}");
        let mut sequence = Sequence {
            random: SeededRandom::new(seed),
            // No ping wakes its connections: nothing but what happens here does.
            server: Server::start(),
            writer: Writer::new("w", "r", Dialect::Api, 64),
            followers: Vec::new(),
        };
        for step in 0..STEPS {
            println!("step {step}");
            sequence.step().await;
        }
        sequence.check().await;
    }
}

impl Sequence {
    fn below(&self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    async fn step(&mut self) {
        match self.below(10) {
            0..=2 => {
                // Few messages, or more than a page, or more than the hub remembers.
                let count = [1, 30, 700, 2_000][usize::try_from(self.below(4)).unwrap()];
                self.send(count).await;
            }
            3 => {
                // Killed in the middle of it.
                let until = self.writer.acked.len() as u64 + 1_500;
                let address = self.server.address();
                let kill_at = self.below(1_000) as usize + self.writer.acked.len();
                let Self { server, writer, .. } = self;
                let lost = writer
                    .run(address, |writer| {
                        if writer.acked.len() >= kill_at {
                            server.kill();
                        }
                        writer.acked.len() as u64 >= until
                    })
                    .await;
                assert!(lost.is_err(), "it was killed");
                server.restart();
                self.send(0).await;
            }
            4 => self.server.restart(),
            5 | 6 if self.followers.len() < FOLLOWERS_MAX => self.subscribe().await,
            7 => {
                if let Some((follower, _)) = self.any() {
                    follower.disconnect();
                }
            }
            8 => {
                let address = self.server.address();
                if let Some((follower, _)) = self.any() {
                    assert!(follower.resume(address).await);
                }
            }
            _ => {
                // Reads some of what there is for it, unless its connection is gone.
                let head = self.head();
                let some = self.below(500);
                if let Some((follower, _)) = self.any() {
                    let to = (follower.position + some).min(head);
                    while follower.is_connected() && follower.position < to {
                        let _ = follower.next().await;
                    }
                }
            }
        }
    }

    /// All that was sent is acknowledged between two steps.
    fn head(&self) -> u64 {
        self.writer.acked.last().map_or(0, |acked| acked.seq.unwrap())
    }

    fn any(&mut self) -> Option<&mut (Follower, usize)> {
        let place = self.random.next_u64() as usize % self.followers.len().max(1);
        self.followers.get_mut(place)
    }

    /// Sends what is not answered yet, and `count` more.
    async fn send(&mut self, count: usize) {
        let until = self.writer.acked.len() + count;
        let address = self.server.address();
        while self.writer.run(address, |writer| writer.acked.len() >= until).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    /// From the oldest, with the last few, or live.
    async fn subscribe(&mut self) {
        let mut follower = Follower::new("r");
        let head = self.head();
        let (how, from) = match self.below(3) {
            0 => (json!({"after": 0}), 0),
            1 => {
                let last = self.below(1_000) + 1;
                (json!({"last": last}), head.saturating_sub(last))
            }
            _ => (json!({}), head),
        };
        assert!(follower.subscribe(self.server.address(), how).await);
        // Where it began; what it resumes from when it saw nothing before it was cut off.
        follower.position = from;
        self.followers.push((follower, usize::try_from(from).unwrap()));
    }

    async fn check(mut self) {
        // So that everybody is connected, everybody has something to hear.
        self.send(1).await;
        let history: Vec<Value> = self.server.history("r").await;
        self.writer.check(&history);
        let head = self.head();
        let address = self.server.address();
        for (follower, from) in &mut self.followers {
            until("a follower", async || {
                if !follower.is_connected() && !follower.resume(address).await {
                    return false;
                }
                while follower.position < head && follower.next().await.is_ok() {}
                follower.position >= head
            })
            .await;
            follower.check(&history[*from..]);
        }
    }
}
