//! Receipts of leases, with an authentication code where callers must prove who they are. The rest of a receipt can be guessed:
//! without a code, whoever may read a queue could end the leases of others.
//!
//! The key of the codes is an entry of [`super::list`]: all servers of a store accept the same receipts, also after a restart.

use std::sync::Arc;

use aws_lc_rs::hmac;
use hubbub_core::queue::LeaseReceipt;

use super::secrets::{are_same, hex, random};

/// Where the key is in the store.
pub(crate) const KEY: &[u8] = b"\0hubbub/receipts";
const KEY_BYTES: usize = 32;
/// Hexadecimal digits of a code: 96 bits.
const CODE_DIGITS: usize = 24;

/// A new key, as it is stored. `None` = the system gives no random bytes.
pub(crate) fn make_key() -> Option<[u8; KEY_BYTES]> {
    random()
}

/// How receipts are written and read: `id-delivery-epoch-code`, or without a code.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceiptFormat {
    /// `None` = nobody has to prove anything, and there are no codes.
    key: Option<Arc<hmac::Key>>,
}

impl ReceiptFormat {
    /// With codes by a key as it is stored. `None` = it is none.
    pub(super) fn with_key(stored: &[u8]) -> Option<Self> {
        let key = (stored.len() == KEY_BYTES).then(|| hmac::Key::new(hmac::HMAC_SHA256, stored))?;
        Some(Self { key: Some(Arc::new(key)) })
    }

    pub(crate) fn write(&self, receipt: LeaseReceipt) -> String {
        let text = receipt.to_string();
        match &self.key {
            Some(key) => format!("{text}-{}", code(key, &text)),
            None => text,
        }
    }

    /// `None` = no server of this store has given it out.
    pub(crate) fn read(&self, text: &str) -> Option<LeaseReceipt> {
        let Some(key) = &self.key else { return text.parse().ok() };
        let (text, given) = text.rsplit_once('-')?;
        if are_same(&code(key, text), given) { text.parse().ok() } else { None }
    }
}

fn code(key: &hmac::Key, text: &str) -> String {
    let mut code = hex(hmac::sign(key, text.as_bytes()).as_ref());
    code.truncate(CODE_DIGITS);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIPT: LeaseReceipt = LeaseReceipt { id: 7, delivery: 2, epoch: 0xc0ffee };

    fn format(byte: u8) -> ReceiptFormat {
        ReceiptFormat::with_key(&[byte; KEY_BYTES]).unwrap()
    }

    #[test]
    fn receipts_with_codes_cannot_be_made_up() {
        let text = format(1).write(RECEIPT);
        assert_eq!(text, "7-2-0000000000c0ffee-051f2fb778d753e0888c94f6");
        assert_eq!((format(1).read(&text), format(2).read(&text)), (Some(RECEIPT), None));
        // Neither a part of it nor another digit anywhere is as good.
        for end in 0..text.len() {
            assert_eq!(format(1).read(&text[..end]), None, "{end}");
        }
        for (at, digit) in text.bytes().enumerate() {
            let other = if digit == b'1' { "2" } else { "1" };
            let mut forged = text.clone();
            forged.replace_range(at..=at, other);
            assert_eq!(format(1).read(&forged), None, "{forged}");
        }
        for more in ["0", "-", "-0"] {
            assert_eq!(format(1).read(&format!("{text}{more}")), None);
        }
        assert_eq!(format(1).read(&text.to_uppercase()), None);
        assert_eq!(format(1).read(""), None);
    }

    /// A code is no proof that the rest is a receipt.
    #[test]
    fn what_is_no_receipt_stays_none() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[1; KEY_BYTES]);
        for text in ["", "7-2", "07-2-0000000000c0ffee"] {
            assert_eq!(format(1).read(&format!("{text}-{}", code(&key, text))), None, "{text}");
        }
    }

    #[test]
    fn without_a_key_receipts_have_no_code() {
        let plain = ReceiptFormat::default();
        assert_eq!(plain.write(RECEIPT), "7-2-0000000000c0ffee");
        assert_eq!(plain.read("7-2-0000000000c0ffee"), Some(RECEIPT));
        assert_eq!(plain.read(&format(1).write(RECEIPT)), None);
    }

    #[test]
    fn keys_have_one_length() {
        for length in [0, KEY_BYTES - 1, KEY_BYTES + 1] {
            assert!(ReceiptFormat::with_key(&vec![1; length]).is_none(), "{length}");
        }
        assert_ne!(make_key(), make_key());
        assert!(make_key().is_some_and(|key| ReceiptFormat::with_key(&key).is_some()));
    }
}
