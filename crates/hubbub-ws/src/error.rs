//! Breaches of the protocol by a peer.

/// Why a connection must be closed, with [`ProtocolError::close_code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A reserved bit is set although no extension was agreed on.
    #[error("a reserved bit is set, but no extension was negotiated")]
    ReservedBits,
    /// The opcode has no meaning in RFC 6455.
    #[error("opcode {0} is reserved")]
    ReservedOpcode(u8),
    /// A client must mask each frame.
    #[error("frames from a client must be masked")]
    Unmasked,
    /// A server must not mask any frame.
    #[error("frames from a server must not be masked")]
    Masked,
    /// A control frame came in pieces.
    #[error("control frames must not be fragmented")]
    ControlFragmented,
    /// A control frame carries too much.
    #[error("control frames carry at most 125 bytes")]
    ControlTooLong,
    /// The length could have been written in fewer bytes.
    #[error("the payload length is not written in its shortest form")]
    LengthNotMinimal,
    /// The length's top bit is set.
    #[error("the payload length exceeds 63 bits")]
    LengthTooLarge,
    /// A continuation with nothing to continue.
    #[error("continuation frame without a message to continue")]
    UnexpectedContinuation,
    /// A new message although the one before is not finished.
    #[error("new message before the last fragment of the one before")]
    UnfinishedMessage,
    /// A close frame with half a code, or a code that must not be sent.
    #[error("close frame with an invalid status code")]
    BadCloseCode,
    /// A text or a close reason is no UTF-8.
    #[error("text is not valid UTF-8")]
    BadUtf8,
    /// A binary message where only texts are taken.
    #[error("binary frames are not taken")]
    Binary,
    /// The message is larger than the receiver takes.
    #[error("message is larger than {limit_bytes} bytes")]
    TooBig {
        /// The receiver's limit.
        limit_bytes: usize,
    },
}

impl ProtocolError {
    /// The status code for the close frame.
    pub const fn close_code(&self) -> u16 {
        match self {
            Self::Binary => 1003,
            Self::BadUtf8 => 1007,
            Self::TooBig { .. } => 1009,
            _ => 1002,
        }
    }
}

/// Why an HTTP response is no agreement to speak WebSocket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// No end of the header within the limit, or the first line is no HTTP.
    #[error("the answer is no HTTP/1.1 response")]
    NotHttp,
    /// Another status than 101.
    #[error("the server answered with status {0} instead of 101")]
    Status(u16),
    /// `Sec-WebSocket-Accept` is missing or does not belong to our key.
    #[error("the server's Sec-WebSocket-Accept does not match the key")]
    WrongAccept,
}
