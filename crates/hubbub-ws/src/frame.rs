//! Frame headers.

use crate::error::ProtocolError;

/// Which end of the connection reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Expects masked frames.
    Server,
    /// Expects unmasked frames.
    Client,
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// More of the message before.
    Continuation = 0,
    /// UTF-8 text.
    Text = 1,
    /// Bytes.
    Binary = 2,
    /// The last frame of its sender.
    Close = 8,
    /// Asks for a pong with the same payload.
    Ping = 9,
    /// Answers a ping.
    Pong = 10,
}

impl Opcode {
    pub(crate) const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Continuation),
            1 => Some(Self::Text),
            2 => Some(Self::Binary),
            8 => Some(Self::Close),
            9 => Some(Self::Ping),
            10 => Some(Self::Pong),
            _ => None,
        }
    }

    pub(crate) const fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// Longest header: two bytes, eight of length, four of mask.
pub(crate) const HEADER_BYTES_MAX: usize = 14;
/// Largest payload of a control frame.
pub(crate) const CONTROL_BYTES_MAX: usize = 125;

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) fin: bool,
    pub(crate) opcode: Opcode,
    /// Absent on frames from a server.
    pub(crate) mask: Option<[u8; 4]>,
    pub(crate) payload_bytes: u64,
}

impl Header {
    /// Reads a header from the start of `bytes`: the header and its length, or `None` when there are too few bytes.
    pub(crate) fn parse(bytes: &[u8], role: Role) -> Result<Option<(Self, usize)>, ProtocolError> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        let opcode = Opcode::from_bits(first & 0x0f).ok_or(ProtocolError::ReservedOpcode(first & 0x0f))?;
        let (fin, masked, short) = (first & 0x80 != 0, second & 0x80 != 0, second & 0x7f);
        check_first_bytes(*first, opcode, masked, short, role)?;
        let (payload_bytes, rest) = match short {
            126 => {
                let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
                (u64::from(u16::from_be_bytes(*length)), rest)
            }
            127 => {
                let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
                (u64::from_be_bytes(*length), rest)
            }
            _ => (u64::from(short), rest),
        };
        if payload_bytes >> 63 != 0 {
            return Err(ProtocolError::LengthTooLarge);
        }
        if (short == 126 && payload_bytes < 126) || (short == 127 && payload_bytes <= 0xffff) {
            return Err(ProtocolError::LengthNotMinimal);
        }
        let (mask, rest) = if masked {
            let Some((key, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (Some(*key), rest)
        } else {
            (None, rest)
        };
        Ok(Some((Self { fin, opcode, mask, payload_bytes }, bytes.len() - rest.len())))
    }
}

fn check_first_bytes(
    first: u8,
    opcode: Opcode,
    masked: bool,
    short: u8,
    role: Role,
) -> Result<(), ProtocolError> {
    if first & 0x70 != 0 {
        return Err(ProtocolError::ReservedBits);
    }
    match (role, masked) {
        (Role::Server, false) => return Err(ProtocolError::Unmasked),
        (Role::Client, true) => return Err(ProtocolError::Masked),
        _ => {}
    }
    if opcode.is_control() {
        if first & 0x80 == 0 {
            return Err(ProtocolError::ControlFragmented);
        }
        if usize::from(short) > CONTROL_BYTES_MAX {
            return Err(ProtocolError::ControlTooLong);
        }
    }
    Ok(())
}
