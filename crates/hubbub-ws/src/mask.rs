//! Masking: XOR with a four-byte key that starts over every four bytes.

/// Masks or unmasks `data`, whose first byte stands at `offset` within its frame's payload.
pub fn apply_mask(data: &mut [u8], key: [u8; 4], offset: usize) {
    let [a, b, c, d] = key;
    let key = match offset & 3 {
        0 => [a, b, c, d],
        1 => [b, c, d, a],
        2 => [c, d, a, b],
        _ => [d, a, b, c],
    };
    let wide = (u64::from(u32::from_ne_bytes(key)) << 32) | u64::from(u32::from_ne_bytes(key));
    let (words, rest) = data.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_byte_by_byte_definition() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        for offset in 0..9 {
            for len in 0..40 {
                let mut data: Vec<u8> = (0..len).collect();
                apply_mask(&mut data, key, offset);
                let plain: Vec<u8> =
                    data.iter().enumerate().map(|(i, b)| b ^ key[(i + offset) % 4]).collect();
                assert_eq!(plain, (0..len).collect::<Vec<u8>>(), "offset {offset} len {len}");
            }
        }
    }
}
