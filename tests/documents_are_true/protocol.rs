//! Every example of `docs/protocol.md`.
