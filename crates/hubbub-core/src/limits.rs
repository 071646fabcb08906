//! Limits on the size of what clients send and read.

/// Limits of requests. Each is a setting (`limits.*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest text of a room message, in bytes.
    pub message_bytes: usize,
    /// Largest body of one HTTP request that is not streamed, in bytes.
    pub body_bytes: usize,
    /// Rooms one socket may subscribe to.
    pub subscriptions: usize,
    /// Rooms that one socket may follow with `"*"`, all rooms of its user.
    pub all_rooms: usize,
    /// Most messages in one page of history.
    pub page_messages: usize,
    /// Longest text of a queue's message, in bytes.
    pub queue_message_bytes: usize,
    /// Longest value of a key, in bytes.
    pub value_bytes: usize,
}

/// Highest value of `limits.message_bytes`: 16 MiB.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 64 * 1024,
            body_bytes: 1024 * 1024,
            subscriptions: 1_000,
            all_rooms: 10_000,
            page_messages: 1_000,
            queue_message_bytes: 256 * 1024,
            value_bytes: 1024 * 1024,
        }
    }
}
