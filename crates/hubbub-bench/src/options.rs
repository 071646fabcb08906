//! Options that several workloads share, with the values a run has when nothing is said.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::{Serialize, Serializer};

use crate::agents::{AgentsArgs, Given};
use crate::analysis::price::PriceArgs;
use crate::client::access::AccessArgs;
use crate::host::cleanup::Made;
use crate::load::message_plan::{BENCH_PREFIX, Shape};

/// Where to send, and what to do with the results.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// Before all others, which take from the same options what is theirs.
    #[command(flatten)]
    pub given: Given,
    /// The server to measure: a URL, HOST:PORT, or PORT alone for this machine; connections and subscribers are shared out among
    /// several
    #[arg(
        long = "server",
        alias = "target",
        env = "HUBBUB_SERVER",
        default_value = "http://127.0.0.1:8080",
        value_delimiter = ',',
        value_parser = server,
        value_name = "URL"
    )]
    pub servers: Vec<String>,
    /// Several servers have one store: what is stored through one of them is there at all
    #[arg(long)]
    pub shared: bool,
    /// Others send to the same servers meanwhile: what these count does not close the ledger
    #[arg(long, hide = true)]
    pub beside_others: bool,
    /// Write summary.json, report.html and CSV files (messages, throughput, samples) into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write into the directory of --out even if it is not empty
    #[arg(long, requires = "out")]
    pub overwrite: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Threads of the load generator
    #[arg(long, default_value_t = crate::host::machine::cores().min(2), value_name = "N")]
    pub threads: usize,
    /// Width of the rows of throughput.csv
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    pub bucket: Duration,
    /// Most rows of metrics.csv, some 50 bytes each, which are written meanwhile. The statistics always cover everything
    #[arg(long, default_value_t = 2_000_000, value_name = "N")]
    pub rows_max: u64,
    /// Repeat the random choices of another run (message ids are new in any case)
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Process ids of the servers that run on this machine: their processor time is shown
    #[arg(long, value_delimiter = ',', value_name = "PID")]
    pub server_pid: Vec<u32>,
    #[command(flatten)]
    pub access: AccessArgs,
    /// PostgreSQL of the server, postgres://…: it is looked at meanwhile
    #[arg(long, env = "HUBBUB_STORE", value_name = "URL")]
    pub database: Option<String>,
    /// Names, or ids, of processes whose processor time and memory are shown, besides those of a PostgreSQL and a RabbitMQ that are
    /// measured: postgres and beam; of those called postgres only the ones that serve --database, if it runs here
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub watch: Vec<String>,
    /// Process ids of the brokers that run on this machine: their processor time is shown
    #[arg(long, value_delimiter = ',', value_name = "PID")]
    pub broker_pid: Vec<u32>,
    #[command(flatten)]
    pub price: PriceArgs,
    #[command(flatten)]
    pub agents: AgentsArgs,
    /// Leave in the servers what the run made there: rooms, keys, queues and clients. Without it, they are removed at the end
    #[arg(long)]
    pub keep: bool,
    /// No live progress
    #[arg(long, short)]
    pub quiet: bool,
    /// What the run makes in its servers, where a user asks for it.
    #[arg(skip)]
    pub made: Made,
}

/// Connections, or clients, of a workload, at most: what is kept for each is made before the load.
pub(crate) const CONNECTIONS_MAX: u64 = 1_000_000;
/// Messages of a connection that are under way, at most.
const IN_FLIGHT_MAX: u64 = 1_000_000;
/// The longest text, or value: 64 MiB.
pub(crate) const TEXT_BYTES_MAX: u64 = 64 << 20;

/// The address of a server as a URL.
fn server(text: &str) -> Result<String, String> {
    let address: hubbub_client::Address = text.parse().map_err(|error: hubbub_client::Error| {
        format!("{}, HOST:PORT, or PORT alone for this machine", error.detail)
    })?;
    Ok(address.to_string())
}

/// What reads a number up to this.
pub(crate) fn sizes(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(..=most)
}

impl Common {
    /// The server of a workload that takes one.
    pub(crate) fn server(&self) -> anyhow::Result<&str> {
        match self.servers.as_slice() {
            [url] => Ok(url),
            _ => anyhow::bail!("this workload measures one server at a time: give --server once"),
        }
    }
}

#[derive(Debug, Clone, Args, Serialize)]
pub(crate) struct Traffic {
    /// Rooms, named by a prefix and their number from 1
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub rooms: u16,
    /// Put before the number of each room
    #[arg(long, default_value = BENCH_PREFIX, value_name = "TEXT")]
    pub room_prefix: String,
    /// Users, drawn from 1 to this
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub users: u32,
    /// Each connection sends as one user, as it does with --secret-file
    #[arg(long)]
    pub own_users: bool,
    /// Random texts of exactly this length in place of the 50 phrases
    #[arg(long, value_parser = sizes(TEXT_BYTES_MAX), value_name = "N")]
    pub text_bytes: Option<usize>,
}

#[derive(Debug, Clone, Args, Serialize)]
pub(crate) struct Sending {
    /// Connections at a time
    #[arg(long, short, default_value_t = 128, value_parser = sizes(CONNECTIONS_MAX), value_name = "N")]
    pub connections: usize,
    #[command(flatten)]
    #[serde(flatten)]
    pub rules: Rules,
    /// Messages that the generator prepares ahead, over all rooms
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub queue: usize,
}

/// One less than the failures of a message that can be counted: after that many it is given up.
const RETRIES_MAX: i64 = u8::MAX as i64 - 1;

#[derive(Debug, Clone, Args, Serialize)]
pub(crate) struct Rules {
    /// Messages without an answer that one connection may have
    #[arg(long, default_value_t = 1, value_parser = sizes(IN_FLIGHT_MAX), value_name = "K")]
    pub in_flight: usize,
    /// Send a message at most this often again, with the same id
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(..=RETRIES_MAX), value_name = "N")]
    pub retries: u8,
    #[command(flatten)]
    #[serde(flatten)]
    pub patience: Patience,
    /// The server sends each message back in place of an acknowledgement
    #[arg(long, hide = true)]
    pub echo: bool,
}

/// How long is waited for answers.
#[derive(Debug, Clone, Args, Serialize)]
pub(crate) struct Patience {
    /// Give up for lost what has no answer after this, and reconnect
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    pub send_timeout: Duration,
    /// Wait before the first retry or reconnection; doubled for each further one
    #[arg(long, default_value = "50ms", value_parser = duration, value_name = "TIME")]
    pub backoff: Duration,
    /// Longest wait before a retry or reconnection
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "TIME")]
    pub backoff_max: Duration,
    /// End the run when nothing was answered for this long
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "TIME")]
    pub give_up: Duration,
}

impl Patience {
    /// How long to wait after the given number of failures: doubled each time.
    pub(crate) fn wait_after(&self, failures: u8) -> Duration {
        let doubled = self.backoff.saturating_mul(1 << u32::from(failures.saturating_sub(1)).min(20));
        doubled.min(self.backoff_max)
    }
}

impl Sending {
    /// Messages under way at any time, in a closed loop; at most, in an open one.
    pub(crate) fn concurrency(&self) -> f64 {
        (self.connections * self.rules.in_flight) as f64
    }
}

impl Traffic {
    /// Messages of this kind, with ids that no other run has.
    pub(crate) fn shape(&self) -> Shape {
        let shape =
            Shape::new(crate::host::machine::seed(), self.users.max(1), self.text_bytes, &self.room_prefix);
        let shape = shape.of_rooms(self.rooms);
        if self.own_users { shape.of_own_users() } else { shape }
    }
}

/// A duration in a report's parameters, in seconds.
pub(crate) fn seconds<S: Serializer, T: Copy + Into<Option<Duration>>>(
    time: &T,
    to: S,
) -> Result<S::Ok, S::Error> {
    (*time).into().map(|time: Duration| time.as_secs_f64()).serialize(to)
}

/// Options from a command line, so that what is measured from within is what a user could type.
pub(crate) fn arguments<A: Args>(name: &'static str, line: &[&str]) -> anyhow::Result<A> {
    let command = A::augment_args(clap::Command::new(name).no_binary_name(true));
    Ok(A::from_arg_matches(&command.try_get_matches_from(line)?)?)
}

/// A duration such as `500ms`, `10s`, `2m` or `1h`; a plain number means seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(format!("unknown unit '{unit}': write 500ms, 10s, 2m or 1h")),
    };
    let number: f64 = number.parse().map_err(|_| "not a number: write 500ms, 10s, 2m or 1h".to_owned())?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, ms) in [("500ms", 500), ("10s", 10_000), ("1.5s", 1_500), ("2m", 120_000), ("3", 3_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)));
        }
        assert!(duration("ten").is_err() && duration("1d").is_err() && duration("").is_err());
    }

    #[test]
    fn what_no_memory_could_hold_is_refused() {
        let endless = u64::MAX.to_string();
        for option in ["--connections", "--in-flight"] {
            assert!(arguments::<Sending>("sending", &[option, &endless]).is_err(), "{option}");
            assert!(arguments::<Sending>("sending", &[option, "1000000"]).is_ok(), "{option}");
        }
        assert!(arguments::<Traffic>("traffic", &["--text-bytes", &endless]).is_err());
        assert!(arguments::<Traffic>("traffic", &["--text-bytes", "1000000"]).is_ok());
    }

    #[test]
    fn a_message_fails_more_often_than_it_is_sent_again() {
        let retries =
            |count: &str| arguments::<Rules>("rules", &["--retries", count]).map(|rules| rules.retries);
        assert!(retries("254").is_ok_and(|most| most < u8::MAX));
        assert!(retries("255").is_err(), "failures could not be counted any further");
    }

    #[test]
    fn backoff_doubles_up_to_its_limit() {
        let patience: Patience = arguments("patience", &[]).expect("defaults");
        let waits: Vec<_> = [1, 2, 3, 4, 5, 6, 200].map(|n| patience.wait_after(n).as_millis()).into();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1000, 1000]);
    }
}
