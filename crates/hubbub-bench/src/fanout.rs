//! Fan-out: a few senders, one room, many subscribers. The senders never run further ahead of the slowest subscriber
//! than a window allows, so the rate is what all of them can take.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::chat::Chat;
use crate::feed::Feed;
use crate::job::Shape;
use crate::lane::Lane;
use crate::ledger::{Ledger, ServerCounts};
use crate::listener::Audience;
use crate::machine::CpuMark;
use crate::options::{Common, duration};
use crate::phase::{self, Progress};
use crate::report::Report;
use crate::run::{Rules, Run};
use crate::session::drive;

/// Options of `bench fanout`.
#[derive(Debug, Clone, Args)]
pub(crate) struct FanoutArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// WebSockets that follow the room
    #[arg(long, short, default_value_t = 100, value_name = "N")]
    pub(crate) subscribers: usize,
    /// Connections that send
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub(crate) senders: usize,
    /// Messages that may be on their way to the subscribers
    #[arg(long, default_value_t = 512, value_name = "N")]
    pub(crate) window: u64,
    /// How long to send
    #[arg(long, short, default_value = "10s", value_parser = duration, value_name = "TIME")]
    pub(crate) duration: Duration,
    /// The room; by default one of its own for each run
    #[arg(long, default_value = "fanout-", value_name = "TEXT")]
    pub(crate) room_prefix: String,
    /// Random texts of exactly this length in place of the 50 phrases
    #[arg(long, value_name = "N")]
    pub(crate) text_bytes: Option<usize>,
}

/// Sends, and counts what arrives.
pub(crate) async fn measure(args: &FanoutArgs) -> anyhow::Result<Report> {
    let target = args.common.target()?;
    let seed = args.common.seed.unwrap_or_else(crate::machine::seed);
    let run_id = crate::machine::seed() & 0xff_ffff_ffff;
    let room_prefix = format!("{}{run_id:x}-", args.room_prefix);
    let shape = Shape::new(run_id, 100_000, args.text_bytes, &room_prefix);
    let mut report = Report::new("fanout", parameters(args));
    let before = ServerCounts::ask(&target).await;
    let run = Arc::new(Run::new(target.clone(), shape, rules(args), args.common.rows_max).with_listeners());
    let (audience, ears) = Audience::gather(&run, args.subscribers, 1, seed).await?;

    let cpu = CpuMark::now(args.common.server_pid);
    run.begin();
    send(args, &run, &audience, seed).await;
    let accepted = run.counts.accepted.load(Ordering::Relaxed);
    report.delivery = Some(audience.finish(1, ears, |_| accepted).await);
    report.cpu = Some(cpu.until(&CpuMark::now(args.common.server_pid)));
    let received = report.delivery.as_ref().map(|delivery| delivery.delivered);
    let after = ServerCounts::ask(&target).await;
    report.ledger = Some(Ledger::of(&[&run], received, before.zip(after)));
    report.add_run(&run, args.common.bucket);
    report.judge(args.common.threads);
    Ok(report)
}

fn rules(args: &FanoutArgs) -> Rules {
    Rules {
        in_flight: saturate::<_, usize>(args.window).div_ceil(args.senders.max(1)),
        send_timeout: Duration::from_secs(10),
        retries: 5,
        backoff_min: Duration::from_millis(50),
        backoff_max: Duration::from_secs(1),
        echo: false,
        give_up: Duration::from_secs(30),
    }
}

async fn send(args: &FanoutArgs, run: &Arc<Run>, audience: &Arc<Audience>, seed: u64) {
    let feed = Arc::new(Feed::open_loop());
    let mut lanes = JoinSet::new();
    for who in 0..args.senders {
        let lane = Lane::new(Arc::clone(run), Arc::clone(&feed), who, true);
        lanes.spawn(drive::<Chat>(lane, run.shape.room_name(1), seed.wrapping_add(who as u64)));
    }
    let (maker_run, maker_feed, maker_audience) = (Arc::clone(run), Arc::clone(&feed), Arc::clone(audience));
    let (window, duration) = (args.window.max(1), args.duration);
    let maker = std::thread::spawn(move || {
        make(&maker_run, &maker_feed, &maker_audience, window, duration, &SeededRandom::new(seed));
    });
    let progress = Progress { name: "sending", messages: 0, quiet: args.common.quiet };
    phase::finish(run, &mut lanes, progress, || _ = feed.abandon()).await;
    // A maker that panicked has made fewer messages, which shows in the count.
    let _ = tokio::task::spawn_blocking(move || maker.join()).await;
}

/// Makes messages as the slowest subscriber takes them.
fn make(run: &Run, feed: &Feed, audience: &Audience, window: u64, duration: Duration, random: &SeededRandom) {
    let mut jobs = Vec::new();
    let mut next = 0;
    while u128::from(run.now_us()) < duration.as_micros() && !feed.is_ended() {
        audience.watch_floor();
        // What was refused reaches nobody.
        let failed =
            run.counts.rejected.load(Ordering::Relaxed) + run.counts.unconfirmed.load(Ordering::Relaxed);
        let under_way = next - audience.floor().saturating_add(failed).min(next);
        let free = window.saturating_sub(under_way);
        // Handing over a few at a time would wake the senders for little.
        if free < window.div_ceil(8) {
            std::thread::park_timeout(Duration::from_millis(1));
            continue;
        }
        jobs.extend((next..next + free).map(|index| run.shape.draw(random, index, 1)));
        next += free;
        feed.push(&mut jobs);
    }
    feed.end();
}

fn parameters(args: &FanoutArgs) -> serde_json::Value {
    json!({
        "target": args.common.targets,
        "subscribers": args.subscribers,
        "senders": args.senders,
        "window": args.window,
        "durationS": args.duration.as_secs_f64(),
        "textBytes": args.text_bytes,
        "threads": args.common.threads,
        "seed": args.common.seed,
    })
}
