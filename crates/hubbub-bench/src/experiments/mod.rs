//! Runs made of several measurements: scenarios from files, the suite, the limits of the machine.

pub(crate) mod bare;
pub(crate) mod limits;
pub(crate) mod scenario;
pub(crate) mod suite;
