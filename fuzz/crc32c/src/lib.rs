//! The checksums of the crate of this name, all 0.

/// 0.
pub fn crc32c(_: &[u8]) -> u32 {
    0
}

/// 0.
pub fn crc32c_append(_: u32, _: &[u8]) -> u32 {
    0
}

/// 0.
pub fn crc32c_combine(_: u32, _: u32, _: usize) -> u32 {
    0
}
