//! How blocks are compressed.

use std::cell::RefCell;
use std::io;

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

/// How the blocks of a file are compressed. Every block says so itself, so both can be read at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    /// For fresh files: fast to write and to read.
    Lz4,
    /// For merged segments: a fifth smaller, half as fast to read.
    Zstd,
}

const STORED: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;
const ZSTD_LEVEL: i32 = 1;

enum Engine {
    Lz4(Box<CompressTable>),
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

/// Compresses one block after another, reusing its tables.
pub(crate) struct Compressor {
    engine: Engine,
    output: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new(codec: Codec) -> io::Result<Self> {
        let engine = match codec {
            Codec::Lz4 => Engine::Lz4(Box::default()),
            Codec::Zstd => Engine::Zstd(Box::new(zstd::bulk::Compressor::new(ZSTD_LEVEL)?)),
        };
        Ok(Self { engine, output: Vec::new() })
    }

    /// The code and the bytes to store; those of `raw` itself when nothing is gained.
    pub(crate) fn compress<'a>(&'a mut self, raw: &'a [u8]) -> io::Result<(u8, &'a [u8])> {
        let room = match self.engine {
            Engine::Lz4(_) => get_maximum_output_size(raw.len()),
            Engine::Zstd(_) => zstd::zstd_safe::compress_bound(raw.len()),
        };
        if self.output.len() < room {
            self.output.resize(room, 0);
        }
        let (code, bytes) = match &mut self.engine {
            Engine::Lz4(table) => {
                (LZ4, compress_into_with_table(raw, &mut self.output, table).map_err(io::Error::other)?)
            }
            Engine::Zstd(zstd) => (ZSTD, zstd.compress_to_buffer(raw, self.output.as_mut_slice())?),
        };
        match self.output.get(..bytes) {
            Some(smaller) if bytes < raw.len() => Ok((code, smaller)),
            _ => Ok((STORED, raw)),
        }
    }
}

/// Back to the `raw_bytes` that were compressed; `None` when the bytes are not such.
pub(crate) fn decompress(code: u8, stored: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
    match code {
        STORED => (stored.len() == raw_bytes).then(|| stored.to_vec()),
        LZ4 => {
            let mut raw = vec![0; raw_bytes];
            (decompress_into(stored, &mut raw).ok()? == raw_bytes).then_some(raw)
        }
        ZSTD => {
            let raw = with_decompressor(|zstd| zstd.decompress(stored, raw_bytes))?.ok()?;
            (raw.len() == raw_bytes).then_some(raw)
        }
        _ => None,
    }
}

thread_local! {
    /// Making one takes as long as a third of a block's decompression.
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

fn with_decompressor<T>(with: impl FnOnce(&mut zstd::bulk::Decompressor<'static>) -> T) -> Option<T> {
    DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Some(zstd::bulk::Decompressor::new().ok()?);
        }
        slot.as_mut().map(with)
    })
}
