//! The head of a GGUF file (ggml's `docs/gguf.md`): the architecture's numbers stand before its vocabulary.

use crate::limits::GGUF_HEAD_BYTES;
use crate::memory::need::{Layers, Shape};

/// Types of a value.
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// What a model is made of, by as much of its file's head as is there, without its size. `None`: it is no GGUF file,
/// of a version that is not known, or no language model.
#[must_use]
pub fn gguf(head: &[u8]) -> Option<Shape> {
    let mut reader = Reader(head.get(..head.len().min(GGUF_HEAD_BYTES))?);
    if reader.take(4)? != b"GGUF" || !matches!(reader.u32()?, 2 | 3) {
        return None;
    }
    let _tensors = reader.u64()?;
    let pairs = reader.u64()?;
    let mut layers = Layers::new();
    for _ in 0..pairs {
        // Where the head ends, what was read stands.
        if reader.pair(&mut layers).is_none() {
            break;
        }
    }
    layers.shape()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u64()?;
        self.take(usize::try_from(len).ok()?)
    }

    /// A value of a fixed size, as a number; those with a fraction and negative ones are 0.
    fn scalar(&mut self, kind: u32) -> Option<u64> {
        let len = match kind {
            0 | 1 | BOOL => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 => 8,
            _ => return None,
        };
        let bytes = self.take(len)?;
        let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let signed = matches!(kind, 1 | 3 | 5 | 11);
        let negative = signed && bytes.last().is_some_and(|last| *last >= 0x80);
        Some(if negative || matches!(kind, 6 | 12) { 0 } else { value })
    }

    fn pair(&mut self, layers: &mut Layers) -> Option<()> {
        let key = std::str::from_utf8(self.string()?).unwrap_or_default();
        let kind = self.u32()?;
        let of_layers = Layers::key(key);
        match kind {
            STRING => {
                let text = self.string()?;
                if key == "general.architecture" {
                    let _longer = std::str::from_utf8(text).map(|arch| layers.arch.push_str(arch));
                }
            }
            ARRAY => {
                let (kind, len) = (self.u32()?, self.u64()?);
                if key == "tokenizer.ggml.tokens" {
                    layers.number("vocab_size", len);
                }
                for _ in 0..len {
                    if kind == STRING {
                        self.string()?;
                    } else {
                        let value = self.scalar(kind)?;
                        of_layers.into_iter().for_each(|key| layers.element(key, value));
                    }
                }
            }
            _ => {
                let value = self.scalar(kind)?;
                of_layers.into_iter().for_each(|key| layers.number(key, value));
            }
        }
        Some(())
    }
}
