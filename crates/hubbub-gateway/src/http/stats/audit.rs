//! `POST /v1/stats/audit`: counts everything anew, and says where the counts differ.

use hubbub_core::ErrorCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::{answer, check_administrator};
use crate::Gateway;
use crate::http::Answer;
use crate::http::endpoint::Call;
use crate::problem::Problem;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Audit {
    /// Gone through.
    messages: u64,
    /// Empty when all counts are right.
    differences: Vec<String>,
    took_ms: f64,
}

pub(in crate::http) async fn audit(call: Call) -> Answer {
    check_administrator(&call.caller()?)?;
    let gateway = call.gateway().clone();
    // It goes on when the caller is gone, and is still the only one then.
    match tokio::spawn(async move { run(&gateway).await }).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::error!(%error, "an audit ended early");
            Err(Problem::new(ErrorCode::Internal, "the audit ended early; see the server's log"))
        }
    }
}

async fn run(gateway: &Gateway) -> Answer {
    // It reads everything and keeps second counts in memory: one is enough.
    let Ok(_only) = gateway.statistics.audit.try_lock() else {
        return Err(Problem::new(
            ErrorCode::Overloaded,
            "another audit is under way; ask again when it is over",
        ));
    };
    let started = gateway.clock.monotonic();
    let audit = gateway.store.audit().await?;
    let took_ms = super::millis_since(gateway, started);
    if !audit.value.differences.is_empty() {
        tracing::error!(differences = ?audit.value.differences, "the statistics are wrong");
    }
    answer(audit, |audit| Audit { messages: audit.messages, differences: audit.differences, took_ms })
}
