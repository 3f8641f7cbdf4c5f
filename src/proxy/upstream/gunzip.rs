//! gzip that came although identity was asked for: undone piece by piece, as it arrives.
//!
//! Its frame (RFC 1952) is read here: flate2's reader of it brings 20 kB of tables for a fast checksum.

use std::io;

use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};

/// Decoded bytes that are given at once, at most.
const PIECE_BYTES: usize = 32 << 10;

/// A decoder that gives what each received chunk holds before the next one is asked for. One [`Gunzip::pull`] gives at
/// most [`PIECE_BYTES`], whatever the ratio.
pub(super) struct Gunzip {
    inflate: Decompress,
    input: Bytes,
    /// Where what is decoded lands first.
    room: Vec<u8>,
    part: Part,
    /// Of the member's decoded bytes so far.
    sum: u32,
    /// How many these are, modulo 2^32.
    length: u32,
    /// The last piece filled its room: there may be more without further input.
    more: bool,
}

/// What of a member comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The header's ten fixed bytes, from this one on. The flags among them say which of the next four there are.
    Head(u8, Flags),
    /// Two bytes of a length, from this one on.
    ExtraLength(u8, u16, Flags),
    /// So many bytes of anything.
    Extra(u16, Flags),
    /// A text that ends with a zero byte.
    Name(Flags),
    /// Another.
    Comment(Flags),
    /// So many bytes of the header's own checksum, which few write and this does not check.
    HeadSum(u8),
    Body,
    /// The checksum and the length, from this byte on.
    Tail(u8, u64),
}

/// The header's flags.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Flags(u8);

impl Flags {
    const HEAD_SUM: u8 = 2;
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;

    const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    /// What comes behind the header's fixed bytes, ...
    const fn after_head(self) -> Part {
        if self.has(Flags::EXTRA) { Part::ExtraLength(0, 0, self) } else { self.after_extra() }
    }

    const fn after_extra(self) -> Part {
        if self.has(Flags::NAME) { Part::Name(self) } else { self.after_name() }
    }

    const fn after_name(self) -> Part {
        if self.has(Flags::COMMENT) { Part::Comment(self) } else { self.after_comment() }
    }

    const fn after_comment(self) -> Part {
        if self.has(Flags::HEAD_SUM) { Part::HeadSum(2) } else { Part::Body }
    }
}

/// Between members, or before the first.
const START: Part = Part::Head(0, Flags(0));

impl Gunzip {
    pub(super) fn new() -> Self {
        Gunzip {
            inflate: Decompress::new(false),
            input: Bytes::new(),
            room: Vec::with_capacity(PIECE_BYTES),
            part: START,
            sum: 0,
            length: 0,
            more: false,
        }
    }

    /// Takes the next chunk, after `pull` gave nothing.
    pub(super) fn feed(&mut self, chunk: Bytes) {
        self.input = chunk;
    }

    /// The next decoded piece; `None` when it needs to be fed. Must not be called again after an error.
    pub(super) fn pull(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if self.input.is_empty() && !self.more {
                return Ok(None);
            }
            if self.part != Part::Body {
                let byte = self.input.get_u8();
                self.part = self.after(byte)?;
                continue;
            }
            self.room.clear();
            let before = self.inflate.total_in();
            let status = self.inflate.decompress_vec(&self.input, &mut self.room, FlushDecompress::Sync)?;
            // No more than there is.
            let taken = usize::try_from(self.inflate.total_in() - before).unwrap_or(0);
            self.input.advance(taken);
            self.more = status != Status::StreamEnd && self.room.len() == self.room.capacity();
            if status == Status::StreamEnd {
                self.part = Part::Tail(0, 0);
            } else if taken == 0 && self.room.is_empty() && !self.input.is_empty() {
                return Err(bad("its compressed data goes nowhere"));
            }
            if !self.room.is_empty() {
                self.sum = summed(self.sum, &self.room);
                // Modulo 2^32, as gzip has it.
                self.length = self.length.wrapping_add(self.room.len() as u32);
                return Ok(Some(Bytes::copy_from_slice(&self.room)));
            }
        }
    }

    /// What comes behind `byte`, outside of the compressed data.
    fn after(&mut self, byte: u8) -> io::Result<Part> {
        Ok(match self.part {
            Part::Head(0, _) if byte != 0x1f => return Err(bad("it is no gzip")),
            Part::Head(1, _) if byte != 0x8b => return Err(bad("it is no gzip")),
            Part::Head(2, _) if byte != 8 => return Err(bad("it is compressed in an unknown way")),
            Part::Head(3, _) => Part::Head(4, Flags(byte)),
            Part::Head(9, flags) => flags.after_head(),
            Part::Head(at, flags) => Part::Head(at + 1, flags),
            Part::ExtraLength(0, _, flags) => Part::ExtraLength(1, byte.into(), flags),
            Part::ExtraLength(_, low, flags) => match u16::from(byte) << 8 | low {
                0 => flags.after_extra(),
                length => Part::Extra(length, flags),
            },
            Part::Extra(1, flags) => flags.after_extra(),
            Part::Extra(left, flags) => Part::Extra(left - 1, flags),
            Part::Name(flags) if byte == 0 => flags.after_name(),
            Part::Comment(flags) if byte == 0 => flags.after_comment(),
            Part::HeadSum(1) => Part::Body,
            Part::HeadSum(left) => Part::HeadSum(left - 1),
            Part::Tail(at, before) => {
                let tail = before | u64::from(byte) << (8 * at);
                if at < 7 {
                    return Ok(Part::Tail(at + 1, tail));
                }
                if tail != u64::from(self.length) << 32 | u64::from(self.sum) {
                    return Err(bad("its checksum is another"));
                }
                self.inflate.reset(false);
                (self.sum, self.length) = (0, 0);
                START
            }
            same @ (Part::Name(_) | Part::Comment(_) | Part::Body) => same,
        })
    }

    /// The body has ended.
    ///
    /// # Errors
    /// Not where gzip says that it ends.
    pub(super) fn finish(&self) -> io::Result<()> {
        if self.part == START { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// CRC-32 over `bytes` behind what gave `sum`, four bits at a time.
fn summed(sum: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 16] = {
        let mut table = [0; 16];
        let mut at = 0;
        while at < 16 {
            let mut value = at as u32;
            let mut bit = 0;
            while bit < 4 {
                value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[at] = value;
            at += 1;
        }
        table
    };
    let step = |sum: u32| sum >> 4 ^ TABLE[(sum & 15) as usize];
    !bytes.iter().fold(!sum, |sum, byte| step(step(sum ^ u32::from(*byte))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn gzip(parts: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let mut chunks = Vec::new();
        for part in parts {
            encoder.write_all(part).unwrap();
            encoder.flush().unwrap();
            chunks.push(std::mem::take(encoder.get_mut()));
        }
        encoder.try_finish().unwrap();
        chunks.push(std::mem::take(encoder.get_mut()));
        chunks
    }

    fn all(gunzip: &mut Gunzip) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(piece) = gunzip.pull().unwrap() {
            out.extend_from_slice(&piece);
        }
        out
    }

    #[test]
    fn each_flushed_chunk_comes_out_at_once() {
        let chunks = gzip(&[b"data: one\n\n", b"data: two\n\n"]);
        let mut gunzip = Gunzip::new();
        gunzip.feed(chunks[0].clone().into());
        assert_eq!(all(&mut gunzip), b"data: one\n\n");
        gunzip.feed(chunks[1].clone().into());
        assert_eq!(all(&mut gunzip), b"data: two\n\n");
        gunzip.feed(chunks[2].clone().into());
        assert_eq!(all(&mut gunzip), b"");
        gunzip.finish().unwrap();
    }

    #[test]
    fn any_cut_gives_the_same_bytes() {
        let text = b"a stream of tokens ".repeat(50);
        let whole = gzip(&[&text]).concat();
        for size in [1, 2, 7, 1000] {
            let mut gunzip = Gunzip::new();
            let mut out = Vec::new();
            for chunk in whole.chunks(size) {
                gunzip.feed(Bytes::copy_from_slice(chunk));
                out.extend(all(&mut gunzip));
            }
            gunzip.finish().unwrap();
            assert_eq!(out, text, "in chunks of {size}");
        }
    }

    #[test]
    fn a_bomb_comes_in_bounded_pieces() {
        let bomb = gzip(&[&vec![0; 32 << 20]]).concat();
        assert!(bomb.len() < 200_000);
        let mut gunzip = Gunzip::new();
        gunzip.feed(bomb.into());
        let (mut total, mut largest) = (0, 0);
        while let Some(piece) = gunzip.pull().unwrap() {
            total += piece.len();
            largest = largest.max(piece.len());
        }
        assert_eq!(total, 32 << 20);
        assert!(largest <= 64 << 10, "{largest}");
    }

    #[test]
    fn a_cut_and_a_broken_one_are_told() {
        let whole = gzip(&[b"something"]).concat();
        let mut cut = Gunzip::new();
        cut.feed(Bytes::copy_from_slice(&whole[..whole.len() - 9]));
        all(&mut cut);
        assert_eq!(cut.finish().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut broken = Gunzip::new();
        broken.feed(Bytes::from_static(b"data: this is no gzip at all\n\n"));
        assert!(broken.pull().is_err());
        Gunzip::new().finish().expect("an empty body needs no gzip trailer");
        for at in [whole.len() - 1, whole.len() - 5] {
            let mut other = whole.clone();
            other[at] ^= 1;
            let mut other_end = Gunzip::new();
            other_end.feed(other.into());
            assert_eq!(other_end.pull().unwrap().unwrap(), &b"something"[..]);
            assert!(other_end.pull().is_err());
        }
    }

    /// Every part that a header may have, and several members.
    #[test]
    fn any_header_and_several_members_in_any_cut() {
        let plain = gzip(&[b"a member. "]).concat();
        let mut whole = Vec::new();
        for flags in (0..32_u8).filter(|flags| flags & 1 == 0) {
            let mut head = plain[..10].to_vec();
            head[3] = flags;
            for (flag, part) in [
                (Flags::EXTRA, &b"\x03\0abc"[..]),
                (Flags::NAME, b"name\0"),
                (Flags::COMMENT, b"\0"),
                (Flags::HEAD_SUM, b"\x01\x02"),
            ] {
                if Flags(flags).has(flag) {
                    head.extend(part);
                }
            }
            whole.extend(head);
            whole.extend(&plain[10..]);
        }
        for size in [1, 2, 3, 7, 40, 2000] {
            let mut gunzip = Gunzip::new();
            let mut out = Vec::new();
            for chunk in whole.chunks(size) {
                gunzip.feed(Bytes::copy_from_slice(chunk));
                out.extend(all(&mut gunzip));
            }
            gunzip.finish().unwrap();
            assert_eq!(out, b"a member. ".repeat(16), "in chunks of {size}");
        }
    }
}
