//! The receipts of this server. Their key is made when the first is given out, or comes back.

use std::sync::Arc;

use hubbub_core::kv::Condition;
use hubbub_core::{ErrorCode, KvOp};

use super::super::api_keys::{change, no_random};
use crate::Gateway;
use crate::auth::receipts::{KEY, ReceiptFormat, make_key};
use crate::problem::Problem;

/// How receipts are written and read.
pub(super) async fn receipt_format(gateway: &Arc<Gateway>) -> Result<ReceiptFormat, Problem> {
    if let Some(format) = gateway.auth.receipt_format() {
        return Ok(format);
    }
    let value = make_key().ok_or_else(no_random)?;
    let op = KvOp::Put { key: KEY, value: &value, ttl_ms: None, condition: Condition::Absent };
    match change(gateway, op).await {
        // Another server was faster: its key is the one.
        Err(problem) if problem.code == ErrorCode::ConditionFailed => {}
        made => drop(made?),
    }
    let unreadable = "the key of receipts in the store cannot be read";
    gateway.auth.receipt_format().ok_or_else(|| Problem::new(ErrorCode::Unreadable, unreadable))
}
