//! Why operations were not confirmed.

/// Why a batch or a part of it was not confirmed, by what the caller may do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Nothing was stored; retry later.
    #[error("the store accepts no writes: {reason}; nothing was stored")]
    Unavailable {
        /// The cause.
        reason: String,
    },
    /// Nothing was stored; ends by itself when space is freed.
    #[error("the disk is full ({reason}); nothing was stored")]
    DiskFull {
        /// What was attempted.
        reason: String,
    },
    /// Nothing was stored, and never will be: more was to be stored at once than the store can take.
    #[error("{reason}; nothing was stored")]
    TooLarge {
        /// How large it is, and how large it may be.
        reason: String,
    },
    /// Nothing was stored, because background work is behind. Retry after a moment.
    #[error("the store is behind with its background work; nothing was stored")]
    Overloaded,
    /// Nothing was stored: the operations come from a log that was not attached since the store was opened, or since it went
    /// back. Attach it, and continue where the store says ([`crate::LogStore`]).
    #[error("the log is not attached ({reason}); nothing was stored")]
    Unattached {
        /// Since when.
        reason: String,
    },
    /// It may be stored. Retry with the same ids only.
    #[error("the write was not confirmed ({reason}); it may be stored")]
    Unconfirmed {
        /// What was attempted and how it failed.
        reason: String,
    },
}

impl ApplyError {
    fn into_reason(self) -> String {
        match self {
            Self::Unconfirmed { reason }
            | Self::Unavailable { reason }
            | Self::DiskFull { reason }
            | Self::TooLarge { reason }
            | Self::Unattached { reason } => reason,
            Self::Overloaded => "the store is behind with its background work".to_owned(),
        }
    }

    /// The same where it is not known whether something is stored.
    pub fn into_unconfirmed(self) -> Self {
        Self::Unconfirmed { reason: self.into_reason() }
    }

    /// The same for all of several operations, others of which may be stored.
    pub fn into_partial(self) -> Self {
        match self {
            Self::Unconfirmed { .. } => self,
            other => Self::Unconfirmed { reason: format!("a part of it failed: {}", other.into_reason()) },
        }
    }
}
