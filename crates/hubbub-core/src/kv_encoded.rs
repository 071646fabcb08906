//! The encoding of a [`KvOp`] in a batch.

use crate::invariant::cast_or_nearest;
use crate::kv::{Condition, KvOp};

#[derive(Debug, Clone, Copy)]
enum Kind {
    Put { ttl_ms: Option<u64> },
    Delete,
    Sweep,
}

/// The fixed-size part of a [`KvOp`] whose key and value are stored in a shared buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedKvOp {
    start: usize,
    key_bytes: u16,
    value_bytes: u32,
    condition: Condition,
    kind: Kind,
}

impl<'a> KvOp<'a> {
    /// The key, if the operation concerns a single one.
    pub fn key(&self) -> Option<&'a [u8]> {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } => Some(key),
            Self::Sweep => None,
        }
    }
}

impl EncodedKvOp {
    pub(crate) fn write(op: &KvOp<'_>, into: &mut Vec<u8>) -> Self {
        let start = into.len();
        let (key, value, condition, kind): (&[u8], &[u8], _, _) = match *op {
            KvOp::Put { key, value, ttl_ms, condition } => (key, value, condition, Kind::Put { ttl_ms }),
            KvOp::Delete { key, condition } => (key, &[], condition, Kind::Delete),
            KvOp::Sweep => (&[], &[], Condition::Always, Kind::Sweep),
        };
        into.extend_from_slice(key);
        into.extend_from_slice(value);
        Self {
            start,
            key_bytes: cast_or_nearest(key.len(), "a key is at most 512 bytes"),
            value_bytes: cast_or_nearest(value.len(), "a value is shorter than 4 GiB"),
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
