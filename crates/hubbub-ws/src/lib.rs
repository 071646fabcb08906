//! WebSocket (RFC 6455) without I/O: bytes in, events out, and frames into a buffer. The server and the load
//! generator share it.
//!
//! Path in: the caller reads a socket into a buffer that many connections share → [`Reader::feed`] unmasks it in
//! place and yields each message borrowed from that buffer → only what a read cut off is copied into the reader.
//! Path out: the functions of [`write`] append whole frames to a buffer; one buffer goes to the socket in one write.
//!
//! Invariants
//! - A reader between messages owns no heap memory, so an idle connection costs only the struct.
//! - The events do not depend on where the reads cut the stream.
//! - A length is checked against the limit when its header arrives, before anything is stored for it.
//!
//! Not here: sockets, time-outs, the closing handshake's timing, extensions (none is offered or accepted).

mod error;
mod frame;
pub mod handshake;
mod mask;
mod reader;
pub mod write;

pub use error::{HandshakeError, ProtocolError};
pub use frame::{Opcode, Role};
pub use mask::apply_mask;
pub use reader::{Event, Frames, Reader};
