//! Asking a server over HTTP at a fixed rate, several kinds of questions in turn by chance.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hubbub_core::clock::{RandomSource, SeededRandom};
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::caller::Caller;
use crate::client::Target;
use crate::record::Dist;

/// Connections that ask, each at its share of the rate.
const CONNECTIONS: u32 = 8;
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Question {
    pub(crate) name: &'static str,
    /// Draws the path of one, with its query.
    pub(crate) path: Box<dyn Fn(&SeededRandom) -> String + Send + Sync>,
}

#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Of each kind, counted from when the question was due.
    pub(crate) kinds: Vec<(&'static str, Dist)>,
    /// Questions with another answer than 200.
    pub(crate) failed: u64,
}

pub(crate) async fn ask(
    target: &Target,
    questions: Vec<Question>,
    per_second: u32,
    time: Duration,
    seed: u64,
) -> anyhow::Result<Times> {
    let kinds = questions.iter().map(|question| (question.name, Dist::default())).collect();
    let times = Arc::new(Mutex::new(Times { kinds, failed: 0 }));
    let questions = Arc::new(questions);
    let every = Duration::from_secs(1) * CONNECTIONS / per_second.max(1);
    let begun = Instant::now();
    let mut askers = JoinSet::new();
    for who in 0..CONNECTIONS {
        let asker = Asker {
            target: target.clone(),
            questions: Arc::clone(&questions),
            random: SeededRandom::new(seed.wrapping_add(u64::from(who))),
            times: Arc::clone(&times),
        };
        askers.spawn(asker.run(begun + every * who / CONNECTIONS, every, begun + time));
    }
    while let Some(ended) = askers.join_next().await {
        ended.context("who asks ended early")??;
    }
    Ok(std::mem::take(&mut *times.lock()))
}

struct Asker {
    target: Target,
    questions: Arc<Vec<Question>>,
    random: SeededRandom,
    times: Arc<Mutex<Times>>,
}

impl Asker {
    /// One question every `every`; each counts from when it was due.
    async fn run(self, first: Instant, every: Duration, end: Instant) -> anyhow::Result<()> {
        let mut caller = Caller::open(&self.target, TIMEOUT).await?;
        let mut tick = interval_at(first, every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            let due = tick.tick().await;
            if due >= end {
                return Ok(());
            }
            let kind = (self.random.next_u64() % self.questions.len().max(1) as u64) as usize;
            let Some(question) = self.questions.get(kind) else { return Ok(()) };
            let path = (question.path)(&self.random);
            let status = caller.request("GET", &path, b"", |response| response.status).await;
            let status = status
                .map_err(|cause| anyhow::anyhow!("no answer to {}: {}", question.name, cause.name()))?;
            let us = saturate(due.elapsed().as_micros());
            let mut times = self.times.lock();
            match times.kinds.get_mut(kind) {
                Some((_, dist)) if status == 200 => dist.add(us),
                _ => times.failed += 1,
            }
        }
    }
}
