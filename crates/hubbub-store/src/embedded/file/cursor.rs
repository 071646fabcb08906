//! A cursor over bytes that says "too short" instead of panicking, and what it reads.

use super::varint;

/// A number of 32 bits as an index: memory is addressed with as many bits at least.
#[inline]
pub(crate) const fn index(number: u32) -> usize {
    const { assert!(usize::BITS >= u32::BITS) };
    number as usize
}

/// Reads forward; `None` when there are not enough bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(bytes)?;
        self.rest = tail;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (head, tail) = self.rest.split_first()?;
        self.rest = tail;
        Some(*head)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        varint::read(&mut self.rest)
    }

    #[inline]
    pub(crate) fn zigzag(&mut self) -> Option<i64> {
        self.varint().map(varint::unzigzag)
    }

    /// A variable-length number that fits 32 bits.
    #[inline]
    pub(crate) fn varint_u32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    /// A variable-length number that is a length in memory.
    #[inline]
    pub(crate) fn length(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }

    /// Bytes behind their length, as [`varint::write_bytes`] writes them.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        varint::read_bytes(&mut self.rest)
    }

    /// A string of 255 bytes at most behind its length in one byte.
    pub(crate) fn name(&mut self) -> Option<&'a str> {
        let length = self.byte()?;
        std::str::from_utf8(self.take(length.into())?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(a in any::<u64>(), b in any::<i64>(), small in -70_i64..70) {
            let mut out = Vec::new();
            varint::write(a, &mut out);
            varint::write_zigzag(b, &mut out);
            varint::write_zigzag(small, &mut out);
            let mut cursor = Cursor::new(&out);
            prop_assert_eq!(cursor.varint(), Some(a));
            prop_assert_eq!(cursor.zigzag(), Some(b));
            prop_assert_eq!(cursor.zigzag(), Some(small));
            prop_assert!(cursor.is_empty());
            prop_assert_eq!(cursor.varint(), None);
        }

        #[test]
        fn bytes_come_back_and_cut_ones_do_not(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut out = Vec::new();
            varint::write_bytes(&bytes, &mut out);
            prop_assert_eq!(Cursor::new(&out).bytes(), Some(bytes.as_slice()));
            prop_assert_eq!(Cursor::new(&out[..out.len() - 1]).bytes(), None);
        }
    }
}
