//! gzip that came although identity was asked for: undone piece by piece, as it arrives.

use std::io::{self, Write};

use bytes::{Buf, Bytes};
use flate2::write::MultiGzDecoder;

/// A decoder that gives what each received chunk holds before the next one is asked for. One
/// [`Gunzip::pull`] gives at most flate2's buffer (32 KiB) and window (32 KiB), whatever the ratio.
pub(super) struct Gunzip {
    decoder: MultiGzDecoder<Vec<u8>>,
    input: Bytes,
    fed: bool,
    flushed: bool,
}

impl Gunzip {
    pub(super) fn new() -> Self {
        Gunzip { decoder: MultiGzDecoder::new(Vec::new()), input: Bytes::new(), fed: false, flushed: true }
    }

    /// Takes the next chunk, after `pull` gave nothing.
    pub(super) fn feed(&mut self, chunk: Bytes) {
        self.fed = true;
        self.flushed = false;
        self.input = chunk;
    }

    /// The next decoded piece; `None` when it needs to be fed. Must not be called again after an error.
    pub(super) fn pull(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if self.input.is_empty() {
                if self.flushed {
                    return Ok(None);
                }
                self.decoder.flush()?;
                self.flushed = true;
            } else {
                let taken = self.decoder.write(&self.input)?;
                self.input.advance(taken);
            }
            let piece = std::mem::take(self.decoder.get_mut());
            if !piece.is_empty() {
                return Ok(Some(piece.into()));
            }
        }
    }

    /// The body has ended: what was left, if the end is where gzip says it is.
    pub(super) fn finish(&mut self) -> io::Result<Bytes> {
        if self.fed {
            self.decoder.try_finish()?;
        }
        Ok(std::mem::take(self.decoder.get_mut()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert!(gunzip.finish().unwrap().is_empty());
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
            out.extend(gunzip.finish().unwrap());
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
        assert!(Gunzip::new().finish().unwrap().is_empty(), "an empty body needs no gzip trailer");
    }
}
