//! What connections of every protocol share.

pub(crate) mod socket;
