//! Sending over HTTP: an open loop with a rate that may rise, or a closed loop; with listeners on WebSockets.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use hubbub_core::clock::SeededRandom;
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::post::Post;
use crate::feed::Feed;
use crate::job::Shape;
use crate::lane::Lane;
use crate::ledger::{Ledger, ServerCounts};
use crate::listener::Audience;
use crate::machine::CpuMark;
use crate::options::{Common, Sending, Traffic, duration};
use crate::pace::{Rate, Schedule, pace, supply};
use crate::phase::{self, Progress};
use crate::report::Report;
use crate::run::Run;
use crate::session::drive;

/// Options of `bench http`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("connections", |arg| arg.default_value("64")))]
pub(crate) struct HttpArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Messages per second, whatever the server does: 5000, or a ramp 1000..10000
    #[arg(long, value_name = "RATE", default_value = "1000..10000", conflicts_with = "closed")]
    pub(crate) rate: Rate,
    /// Closed loop: each connection sends its next message when the last is answered
    #[arg(long)]
    pub(crate) closed: bool,
    /// How long to send
    #[arg(long, short, default_value = "30s", value_parser = duration, value_name = "TIME")]
    pub(crate) duration: Duration,
    /// WebSockets that follow the rooms, in turn
    #[arg(long, short, default_value_t = 0, value_name = "N")]
    pub(crate) listeners: usize,
    #[command(flatten)]
    pub(crate) sending: Sending,
    #[command(flatten)]
    pub(crate) traffic: Traffic,
}

/// In an open loop, what has not been sent this long after its end is given up.
const DRAIN: Duration = Duration::from_secs(10);

/// Sends and listens.
pub(crate) async fn measure(args: &HttpArgs) -> anyhow::Result<Report> {
    let target = args.common.target()?;
    let seed = args.common.seed.unwrap_or_else(crate::machine::seed);
    let traffic = &args.traffic;
    let run_id = crate::machine::seed() & 0xff_ffff_ffff;
    let shape = Shape::new(run_id, traffic.users.max(1), traffic.text_bytes, &traffic.room_prefix);
    let mut report = Report::new("http", parameters(args));
    let before = ServerCounts::ask(&target).await;
    let run = Run::new(target.clone(), shape, args.sending.rules(), args.common.rows_max);
    let run = Arc::new(if args.listeners > 0 { run.with_listeners() } else { run });
    let (audience, ears) = Audience::gather(&run, args.listeners, traffic.rooms, seed).await?;

    let cpu = CpuMark::now(args.common.server_pid);
    run.begin();
    let dropped = send(args, &run, seed).await;
    report.cpu = Some(cpu.until(&CpuMark::now(args.common.server_pid)));

    let by_room = run.record.lock().by_room.clone();
    let expected = |room: u16| by_room.get(usize::from(room)).copied().unwrap_or(0);
    let delivery = audience.finish(traffic.rooms, ears, expected).await;
    report.delivery = (args.listeners > 0).then_some(delivery);
    let received = report.delivery.as_ref().map(|delivery| delivery.delivered);
    let after = ServerCounts::ask(&target).await;
    report.ledger = Some(Ledger::of(&[&run], received, before.zip(after)));
    report.add_run(&run, args.common.bucket);
    if args.closed {
        report.audit((args.sending.connections * args.sending.in_flight) as f64);
    }
    if dropped > 0 {
        report.notes.push(format!("the server fell behind: {dropped} messages were never sent"));
    }
    report.judge(args.common.threads);
    Ok(report)
}

/// Sends until the time is over; the answer is how many messages were dropped unsent.
async fn send(args: &HttpArgs, run: &Arc<Run>, seed: u64) -> usize {
    let feed = Arc::new(if args.closed { Feed::bounded(args.sending.queue) } else { Feed::open_loop() });
    let mut lanes = JoinSet::new();
    for who in 0..args.sending.connections {
        let lane = Lane::new(Arc::clone(run), Arc::clone(&feed), who, false);
        lanes.spawn(drive::<Post>(lane, String::new(), seed.wrapping_add(who as u64)));
    }
    let schedule = Schedule::new(args.rate, args.duration, run.now_us());
    let messages = if args.closed { 0 } else { schedule.messages() };
    let (maker_run, maker_feed) = (Arc::clone(run), Arc::clone(&feed));
    let (closed, duration, rooms) = (args.closed, args.duration, args.traffic.rooms);
    let maker = std::thread::spawn(move || {
        let random = SeededRandom::new(seed);
        if closed {
            supply(&maker_run, &maker_feed, duration, rooms, &random);
        } else {
            pace(&maker_run, &maker_feed, &schedule, rooms, &random);
        }
    });
    let progress = Progress { name: "sending", messages, quiet: args.common.quiet };
    let deadline = args.duration + DRAIN;
    let mut dropped = 0;
    let waited =
        tokio::time::timeout(deadline, phase::finish(run, &mut lanes, progress, || _ = feed.abandon())).await;
    if waited.is_err() {
        dropped = feed.abandon();
        phase::finish(run, &mut lanes, progress, || _ = feed.abandon()).await;
    }
    // A pacer that panicked has sent less than the schedule says, which shows in the count.
    let _ = tokio::task::spawn_blocking(move || maker.join()).await;
    dropped
}

fn parameters(args: &HttpArgs) -> serde_json::Value {
    json!({
        "target": args.common.targets,
        "rate": if args.closed { None } else { Some(args.rate.to_string()) },
        "durationS": args.duration.as_secs_f64(),
        "listeners": args.listeners,
        "threads": args.common.threads,
        "seed": args.common.seed,
        "sending": args.sending,
        "traffic": args.traffic,
    })
}
