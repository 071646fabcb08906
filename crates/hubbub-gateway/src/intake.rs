//! Checks a client's draft and completes it to a message for the log.

use hubbub_core::draft::{Defaults, MessageDraft, Rules};
use hubbub_core::{Send, Timestamp};

use crate::Gateway;
use crate::auth::Caller;
use crate::problem::Problem;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Intake<'a> {
    pub(crate) rules: Rules,
    /// The room of the path; `None` = the draft says it.
    pub(crate) room: Option<&'a str>,
    pub(crate) caller: &'a Caller,
    /// The id to use when the draft has none; `None` = the server makes one.
    pub(crate) key: Option<&'a str>,
    pub(crate) now: Timestamp,
}

impl Gateway {
    /// Passes the checked message to `take`, or names everything that is wrong with the draft.
    pub(crate) fn check<R>(
        &self,
        draft: &MessageDraft<'_>,
        intake: &Intake<'_>,
        take: impl FnOnce(&Send<'_>) -> R,
    ) -> Result<R, Problem> {
        let made_id = match (draft.given_id(), intake.key) {
            (Some(_), _) => String::new(),
            (None, Some(key)) => key.to_owned(),
            (None, None) => self.make_id(intake.now),
        };
        let user = intake.caller.as_str();
        let defaults = Defaults { room: intake.room, user, id: &made_id, now: intake.now };
        let refuse = |problem| Problem { message_id: draft.given_id().map(str::to_owned), ..problem };
        let mut faults = Vec::new();
        let Some(sent) = draft.check(intake.rules, &self.limits, &defaults, &mut faults) else {
            return Err(refuse(Problem::invalid(faults)));
        };
        intake.caller.check_sender(sent.user).map_err(refuse)?;
        Ok(take(&sent))
    }
}
