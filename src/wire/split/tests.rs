//! Any cut of any stream gives the same events.

use proptest::prelude::*;

use super::*;
use crate::wire::sse;

/// The pieces of a stream that arrives in `chunks`, and whether it ended between events.
fn pieces(framing: Framing, chunks: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let mut splitter = Splitter::new(framing);
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    for chunk in chunks {
        let mut rest = *chunk;
        while let Some(len) = splitter.push(rest) {
            assert!(len > 0 && len <= rest.len());
            piece.extend_from_slice(&rest[..len]);
            pieces.push(std::mem::take(&mut piece));
            rest = &rest[len..];
        }
        piece.extend_from_slice(rest);
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    (pieces, splitter.is_between())
}

type Event = (Vec<u8>, Option<Vec<u8>>, bool);

/// What the pieces say: name, data, whether something is no SSE; comments and blanks left out.
fn events(pieces: &[Vec<u8>]) -> Vec<Event> {
    let mut events = Vec::new();
    for piece in pieces {
        let mut join = vec![0; piece.len()];
        let event = sse::parse(piece, &mut join).unwrap();
        if !event.comment_only() && !event.is_empty() {
            events.push((event.name.to_vec(), event.data.map(<[u8]>::to_vec), event.stray.is_some()));
        }
    }
    events
}

/// The standard's own algorithm, on the whole stream: line by line, then dispatch.
fn oracle(stream: &[u8]) -> Vec<Event> {
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let text = String::from_utf8(stream.to_vec()).unwrap().replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    for block in text.split("\n\n") {
        let mut event: Event = (Vec::new(), None, false);
        let mut any = false;
        for line in block.split('\n').filter(|line| !line.is_empty() && !line.starts_with(':')) {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            any = true;
            match name {
                "data" => match &mut event.1 {
                    Some(data) => {
                        data.push(b'\n');
                        data.extend_from_slice(value.as_bytes());
                    }
                    data => *data = Some(value.as_bytes().to_vec()),
                },
                "event" => event.0 = value.as_bytes().to_vec(),
                "id" | "retry" => {}
                _ => event.2 = true,
            }
        }
        if any {
            events.push(event);
        }
    }
    events
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        "data: ?\\{\"[a-zé漢😀\u{2028}\u{85}]{0,12}\"\\}",
        Just("data:[DONE]".to_owned()),
        Just("data".to_owned()),
        Just("data:  two spaces".to_owned()),
        Just("event: error".to_owned()),
        Just("event:ping".to_owned()),
        Just("id: 7".to_owned()),
        Just("retry: 1000".to_owned()),
        Just(":".to_owned()),
        Just(": keep-alive".to_owned()),
        Just("  \"error\": {".to_owned()),
        Just("proxy error: gone".to_owned()),
        Just("<html>".to_owned()),
        Just(String::new()),
        Just(String::new()),
        Just(String::new()),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r")];
    (any::<bool>(), prop::collection::vec((line(), end), 0..24), "[a-z:]{0,6}").prop_map(
        |(bom, lines, tail)| {
            let mut stream = if bom { b"\xEF\xBB\xBF".to_vec() } else { Vec::new() };
            for (line, end) in lines {
                // An LF straight after a bare CR would be one line end, not two.
                let end = if line.is_empty() && stream.ends_with(b"\r") && end == "\n" { "\r" } else { end };
                stream.extend_from_slice(line.as_bytes());
                stream.extend_from_slice(end.as_bytes());
            }
            stream.extend_from_slice(tail.as_bytes());
            stream
        },
    )
}

fn cut<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    at.push(0);
    at.push(stream.len());
    at.sort_unstable();
    at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn any_cut_of_sse_gives_the_same_events(
        stream in stream(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let (whole, _) = pieces(Framing::Sse, &[&stream]);
        let (parts, between) = pieces(Framing::Sse, &cut(&stream, &cuts));
        prop_assert_eq!(parts.concat(), &stream[..]);
        prop_assert_eq!(events(&parts), events(&whole));
        prop_assert_eq!(events(&whole), oracle(&stream));
        // One byte at a time, too.
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        let (bytes, byte_between) = pieces(Framing::Sse, &bytes);
        prop_assert_eq!(events(&bytes), events(&whole));
        prop_assert_eq!(between, byte_between);
    }

    #[test]
    fn what_is_kept_without_comments_says_the_same(stream in stream()) {
        let (pieces_before, _) = pieces(Framing::Sse, &[&stream]);
        let mut kept = Vec::new();
        for piece in &pieces_before {
            for range in sse::without_comments(piece) {
                kept.extend_from_slice(&piece[range]);
            }
        }
        let (pieces_after, _) = pieces(Framing::Sse, &[&kept]);
        prop_assert_eq!(events(&pieces_after), events(&pieces_before));
        let comments = pieces_after.iter().any(|piece| sse::parse(piece, &mut vec![0; piece.len()]).unwrap().comments);
        prop_assert!(!comments);
    }

    #[test]
    fn any_cut_of_ndjson_gives_the_same_lines(
        stream in "([a-zé漢\\{\\}]{0,9}\r?\n){0,12}[a-z]{0,3}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let stream = stream.as_bytes();
        let (parts, between) = pieces(Framing::Ndjson, &cut(stream, &cuts));
        let lines: Vec<Vec<u8>> = stream.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        prop_assert_eq!(parts, lines);
        prop_assert_eq!(between, stream.is_empty() || stream.ends_with(b"\n"));
    }

    #[test]
    fn arbitrary_bytes_are_never_lost(
        stream in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), any::<u8>()], 0..64),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        for framing in [Framing::Sse, Framing::Ndjson] {
            let (parts, _) = pieces(framing, &cut(&stream, &cuts));
            prop_assert_eq!(parts.concat(), &stream[..]);
        }
    }
}

#[test]
fn a_cr_ends_its_line_at_once_and_its_lf_ends_no_other() {
    let mut splitter = Splitter::new(Framing::Sse);
    assert_eq!(splitter.push(b"data: a\r"), None);
    assert_eq!(splitter.push(b"\n\r"), Some(2));
    assert!(splitter.is_between());
    assert_eq!(splitter.push(b"\n"), None);
    assert!(splitter.is_between(), "the LF belongs to the event that is over");
    assert_eq!(splitter.push(b"data: b\n"), None);
    assert!(!splitter.is_between());
    assert_eq!(splitter.push(b"\n"), Some(1));
}

#[test]
fn blank_lines_are_pieces_of_their_own() {
    assert_eq!(
        pieces(Framing::Sse, &[b"\n\r\n\rdata: a\n\n"]).0,
        [&b"\n"[..], b"\r\n", b"\r", b"data: a\n\n"]
    );
    assert_eq!(pieces(Framing::Ndjson, &[b"\n\n{}\r\n"]).0, [&b"\n"[..], b"\n", b"{}\r\n"]);
}
