//! The classic chat load test: warm up, then send many messages over WebSockets that each wait for their answers.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use hubbub_core::clock::SeededRandom;
use hubbub_core::invariant::saturate;
use serde_json::json;

use crate::client::Target;
use crate::client::chat::Chat;
use crate::feed::Supplier;
use crate::job::Shape;
use crate::ledger::{Ledger, ServerCounts};
use crate::machine::CpuMark;
use crate::options::{Common, Sending, Traffic, duration};
use crate::phase::{self, Progress};
use crate::report::Report;
use crate::run::Run;

/// Options of `bench chat`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Messages in all, the warm-up included
    #[arg(long, short = 'n', default_value_t = 500_000, value_name = "N")]
    pub(crate) messages: u64,
    /// End the measured phase after this time, even if messages are left
    #[arg(long, short, value_parser = duration, value_name = "TIME")]
    pub(crate) duration: Option<Duration>,
    /// Connections of the warm-up
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub(crate) warmup_connections: usize,
    /// Messages that each connection of the warm-up sends
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub(crate) warmup_messages: u64,
    #[command(flatten)]
    pub(crate) sending: Sending,
    #[command(flatten)]
    pub(crate) traffic: Traffic,
}

/// Runs the warm-up and the measured phase.
pub(crate) async fn measure(args: &ChatArgs) -> anyhow::Result<Report> {
    let target = args.common.target()?;
    let seed = args.common.seed.unwrap_or_else(crate::machine::seed);
    let shape = Shape::new(
        crate::machine::seed() & 0xff_ffff_ffff,
        args.traffic.users.max(1),
        args.traffic.text_bytes,
        &args.traffic.room_prefix,
    );
    let before = ServerCounts::ask(&target).await;
    let mut report = Report::new("chat", parameters(args));

    let warmup = (args.warmup_connections as u64 * args.warmup_messages).min(args.messages);
    let warm = Phase { args, target: &target, shape: &shape, seed, name: "warm-up", rows_max: 0, time: None };
    let warmed = warm.run(args.warmup_connections, 0, warmup).await;

    let cpu = CpuMark::now(args.common.server_pid);
    let main = Phase { name: "main", rows_max: args.common.rows_max, time: args.duration, ..warm };
    let main = main.run(args.sending.connections, warmup, args.messages - warmup).await;
    report.cpu = Some(cpu.until(&CpuMark::now(args.common.server_pid)));

    let after = ServerCounts::ask(&target).await;
    report.ledger = Some(Ledger::of(&[&warmed, &main], None, before.zip(after)));
    report.add_run(&main, args.common.bucket);
    report.audit((args.sending.connections * args.sending.in_flight) as f64);
    report.judge(args.common.threads);
    Ok(report)
}

struct Phase<'a> {
    args: &'a ChatArgs,
    target: &'a Target,
    shape: &'a Shape,
    seed: u64,
    name: &'static str,
    rows_max: usize,
    time: Option<Duration>,
}

impl Phase<'_> {
    async fn run(&self, connections: usize, first: u64, messages: u64) -> Arc<Run> {
        let rules = self.args.sending.rules();
        // With one connection, one room.
        let rooms = self.args.traffic.rooms.clamp(1, saturate::<_, u16>(connections).max(1));
        let rooms_of: Vec<u16> = (0..connections).map(|i| (i % usize::from(rooms)) as u16 + 1).collect();
        let supplier = Supplier::new(rooms, self.args.sending.queue);
        let run = Arc::new(Run::new(self.target.clone(), self.shape.clone(), rules, self.rows_max));
        let mut lanes = phase::spawn::<Chat>(&run, &supplier, &rooms_of, self.seed);
        let random = SeededRandom::new(self.seed ^ first);
        let (maker, shape) = (Arc::clone(&supplier), self.shape.clone());
        let generator =
            std::thread::spawn(move || maker.generate(&shape, &random, first, messages, &rooms_of));
        let watched = Progress { name: self.name, messages, quiet: self.args.common.quiet };
        let time = self.time.unwrap_or(Duration::MAX);
        let ended = phase::finish(&run, &mut lanes, watched, || supplier.abandon());
        if tokio::time::timeout(time, ended).await.is_err() {
            supplier.abandon();
            phase::finish(&run, &mut lanes, watched, || supplier.abandon()).await;
        }
        // A generator that panicked would have sent less than asked for, which the ledger shows.
        let _ = tokio::task::spawn_blocking(move || generator.join()).await;
        run
    }
}

fn parameters(args: &ChatArgs) -> serde_json::Value {
    json!({
        "target": args.common.targets,
        "messages": args.messages,
        "durationS": args.duration.map(|time| time.as_secs_f64()),
        "warmupConnections": args.warmup_connections,
        "warmupMessages": args.warmup_messages,
        "threads": args.common.threads,
        "seed": args.common.seed,
        "sending": args.sending,
        "traffic": args.traffic,
    })
}
