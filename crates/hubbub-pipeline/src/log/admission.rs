//! Whether a log with a broker accepts submissions.

use crate::batcher::SubmitError;

/// Open, suspended while the broker is away, or closing for good.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Admission {
    #[default]
    Open,
    /// Submissions are refused for now, with the reason.
    Suspended(String),
    /// Only the server's own submissions are accepted.
    Closing,
}

impl Admission {
    /// Whether a submission is accepted; `is_own` = the server's own.
    pub(super) fn check(&self, is_own: bool) -> Result<(), SubmitError> {
        match self {
            Self::Suspended(_) => Err(SubmitError::Unavailable),
            Self::Closing if !is_own => Err(SubmitError::ShuttingDown),
            Self::Open | Self::Closing => Ok(()),
        }
    }

    /// Accepts submissions again. Returns whether they were refused.
    pub(super) fn resume(&mut self) -> bool {
        let was_suspended = matches!(self, Self::Suspended(_));
        if was_suspended {
            *self = Self::Open;
        }
        was_suspended
    }

    /// Refuses submissions for now. Returns whether they were accepted.
    pub(super) fn suspend(&mut self, reason: &str) -> bool {
        let was_open = *self == Self::Open;
        if *self != Self::Closing {
            *self = Self::Suspended(reason.to_owned());
        }
        was_open
    }

    /// Accepts nothing from clients any more.
    pub(super) fn begin_close(&mut self) {
        *self = Self::Closing;
    }

    /// Why submissions are refused; `None` = they are accepted, or the server closes.
    pub(super) fn fault(&self) -> Option<String> {
        match self {
            Self::Suspended(reason) => Some(reason.clone()),
            Self::Open | Self::Closing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_closes_for_good() {
        let mut admission = Admission::default();
        assert!(!admission.resume() && admission.suspend("away") && !admission.suspend("still away"));
        assert_eq!(admission.fault().as_deref(), Some("still away"));
        assert_eq!(admission.check(true), Err(SubmitError::Unavailable));
        assert!(admission.resume());
        assert_eq!((admission.check(false), admission.fault()), (Ok(()), None));
        admission.begin_close();
        assert!(!admission.suspend("away") && !admission.resume());
        assert_eq!(admission.check(false), Err(SubmitError::ShuttingDown));
        assert_eq!((admission.check(true), admission.fault()), (Ok(()), None));
    }
}
