//! The conditions of an experiment: which processors each part may use ([`cores`]), and how far away the server is
//! ([`delay`]).

pub(crate) mod cores;
pub(crate) mod delay;
