//! How a [`KvOp`] stands in a batch.

use crate::kv::{Condition, KvOp};

#[derive(Debug, Clone, Copy)]
enum Kind {
    Put { ttl_ms: Option<u64> },
    Delete,
    Sweep,
}

/// The fixed part of a [`KvOp`] whose key and value stand one after the other in shared bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KvHead {
    start: usize,
    key_bytes: u16,
    value_bytes: u32,
    condition: Condition,
    kind: Kind,
}

impl<'a> KvOp<'a> {
    /// The key it belongs to, if it is one.
    pub fn key(&self) -> Option<&'a [u8]> {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } => Some(key),
            Self::Sweep => None,
        }
    }
}

impl KvHead {
    pub(crate) fn write(op: &KvOp<'_>, into: &mut Vec<u8>) -> Self {
        let start = into.len();
        let (key, value, condition, kind): (&[u8], &[u8], _, _) = match *op {
            KvOp::Put { key, value, ttl_ms, condition } => (key, value, condition, Kind::Put { ttl_ms }),
            KvOp::Delete { key, condition } => (key, &[], condition, Kind::Delete),
            KvOp::Sweep => (&[], &[], Condition::Always, Kind::Sweep),
        };
        into.extend_from_slice(key);
        into.extend_from_slice(value);
        // Keys and values were limited when they were checked; nothing is cut.
        Self {
            start,
            key_bytes: u16::try_from(key.len()).unwrap_or(u16::MAX),
            value_bytes: u32::try_from(value.len()).unwrap_or(u32::MAX),
            condition,
            kind,
        }
    }

    /// The same after its bytes moved by `offset`.
    pub(crate) fn moved_by(mut self, offset: usize) -> Self {
        self.start += offset;
        self
    }

    pub(crate) fn read<'a>(&self, from: &'a [u8]) -> Option<KvOp<'a>> {
        let (key, rest) = from.get(self.start..)?.split_at_checked(self.key_bytes.into())?;
        let condition = self.condition;
        Some(match self.kind {
            Kind::Put { ttl_ms } => {
                let value = rest.get(..usize::try_from(self.value_bytes).ok()?)?;
                KvOp::Put { key, value, ttl_ms, condition }
            }
            Kind::Delete => KvOp::Delete { key, condition },
            Kind::Sweep => KvOp::Sweep,
        })
    }
}
