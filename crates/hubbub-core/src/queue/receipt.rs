//! The proof of one delivery on lease, and its text.

use std::fmt;
use std::str::FromStr;

use crate::number::parse_canonical;

/// Hexadecimal digits of an epoch.
const EPOCH_DIGITS: usize = 16;

/// Identifies one delivery on lease: no other delivery of this message, even after it moved between queues, and no
/// message with the same id in another history of the store.
///
/// Its text is `id-delivery-epoch`, the epoch in 16 hexadecimal digits. It is opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseReceipt {
    /// The message.
    pub id: u64,
    /// Number of the delivery, from 1. It continues when the message moves to another queue, where the deliveries that count
    /// for `deliveries_max` start again.
    pub delivery: u64,
    /// The store's history; see [`epoch_number`].
    pub epoch: u64,
}

/// The number of a store's epoch, whose text is hexadecimal. Other texts are hashed, so that receipts do not match by
/// chance.
pub fn epoch_number(epoch: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    u64::from_str_radix(epoch, 16).unwrap_or_else(|_| epoch.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
}

impl fmt::Display for LeaseReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{:016x}", self.id, self.delivery, self.epoch)
    }
}

/// The text is no receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAReceipt;

impl FromStr for LeaseReceipt {
    type Err = NotAReceipt;

    fn from_str(text: &str) -> Result<Self, NotAReceipt> {
        let mut parts = text.split('-');
        let (Some(id), Some(delivery), Some(epoch), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotAReceipt);
        };
        // One receipt has one spelling.
        let number = |text| parse_canonical(text).ok_or(NotAReceipt);
        let is_epoch = epoch.len() == EPOCH_DIGITS
            && epoch.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let epoch = u64::from_str_radix(epoch, 16).ok().filter(|_| is_epoch).ok_or(NotAReceipt)?;
        Ok(Self { id: number(id)?, delivery: number(delivery)?, epoch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_have_one_spelling() {
        for (text, id, delivery, epoch) in [
            ("7-2-0000000000c0ffee", 7, 2, 0xc0ffee),
            ("0-0-0000000000000000", 0, 0, 0),
            ("1-99999999999-ffffffffffffffff", 1, 99_999_999_999, u64::MAX),
        ] {
            let receipt = LeaseReceipt { id, delivery, epoch };
            assert_eq!((text.parse(), receipt.to_string()), (Ok(receipt), text.to_owned()));
        }
        for bad in ["", "7", "7-2", "7-2-", "7-2-1", "7-2-c0ffee", "7-2-x", "7-2-+000000000c0ffee"] {
            assert_eq!(bad.parse::<LeaseReceipt>(), Err(NotAReceipt), "{bad}");
        }
        for begin in ["-2", "07-2", "7-+2", "7-2-1", "7-", ""] {
            let bad = format!("{begin}-0000000000c0ffee");
            assert_eq!(bad.parse::<LeaseReceipt>(), Err(NotAReceipt), "{bad}");
        }
        assert_eq!("7-2-0000000000C0FFEE".parse::<LeaseReceipt>(), Err(NotAReceipt));
        assert_eq!("7-2-10000000000000000".parse::<LeaseReceipt>(), Err(NotAReceipt));
    }

    #[test]
    fn an_epoch_is_its_digits() {
        assert_eq!(epoch_number("00000000c0ffee00"), 0xc0ff_ee00);
        assert_ne!(epoch_number("first"), epoch_number("second"));
    }
}
