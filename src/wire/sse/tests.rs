//! What one event says, line by line.

use super::*;

/// Name, data, where the data is, what is stray.
type Parsed = (Vec<u8>, Option<Vec<u8>>, Option<Range<usize>>, Option<Range<usize>>);

fn parsed(raw: &[u8]) -> Parsed {
    let mut join = vec![0; raw.len()];
    let event = parse(raw, &mut join).unwrap();
    (event.name.to_vec(), event.data.map(<[u8]>::to_vec), event.data_at, event.stray)
}

fn data(raw: &[u8]) -> Option<String> {
    parsed(raw).1.map(|data| String::from_utf8(data).unwrap())
}

fn kept(raw: &[u8]) -> Vec<u8> {
    without_comments(raw).flat_map(|range| raw[range].to_vec()).collect()
}

#[test]
fn data_is_borrowed_where_it_stands_on_one_line() {
    assert_eq!(parsed(b"data: {}\n\n"), (b"".to_vec(), Some(b"{}".to_vec()), Some(6..8), None));
    assert_eq!(parsed(b"data:{}\r\n\r\n"), (b"".to_vec(), Some(b"{}".to_vec()), Some(5..7), None));
    assert_eq!(parsed(b"\n: c\nid: 7\nevent: x\ndata: a").0, b"x");
    assert_eq!(data(b"data:  a\n\n").as_deref(), Some(" a"), "only one space goes");
    assert_eq!(data(b"data\n\n").as_deref(), Some(""));
    assert_eq!(data(b"\xEF\xBB\xBFdata: a\n\n").as_deref(), Some("a"));
    assert_eq!(data(b"event: a\n\n"), None);
}

#[test]
fn data_on_several_lines_is_joined() {
    let raw = b"data: a\rdata:b\r\ndata: c\n\n";
    assert_eq!(parsed(raw), (b"".to_vec(), Some(b"a\nb\nc".to_vec()), None, None));
    assert_eq!(parse(raw, &mut [0; 4]), Err(JoinFull));
    assert_eq!(parse(raw, &mut [0; 5]).unwrap().data, Some(&b"a\nb\nc"[..]));
    assert_eq!(first_data(b"event: e\ndata: {\"a\":\ndata: 1"), (&b"e"[..], Some(15..20)));
}

#[test]
fn what_is_no_field_is_stray() {
    for raw in [
        &b"{\n  \"error\": {\n    \"code\": 503\n  }\n}\n"[..],
        b"<html>\n<head></head>\n",
        b"proxy error: Could not reach\n",
        b"database: 1\n",
        b"dat: 1",
        b"}\n",
    ] {
        let stray = parsed(raw).3.unwrap();
        assert_eq!(raw[stray].trim_ascii(), raw.trim_ascii());
    }
    assert_eq!(parsed(b"data: a\nx: y\n\n").3, Some(8..12));
    assert_eq!(parsed(b": x\nevent: a\nid: b\nretry: 1\ndata: c\n\n").3, None);
}

#[test]
fn comments_go_and_all_else_stays() {
    assert_eq!(kept(b": c\ndata: a\r\n:d\r\ndata: b\n\n"), b"data: a\r\ndata: b\n\n");
    assert_eq!(kept(b"\n: c\n\n"), b"");
    assert_eq!(kept(b"\r\n"), b"\r\n", "a blank line is no comment");
    assert_eq!(kept(b"data: a\r:c\n\n"), b"data: a\r\n\n", "CR and LF stay two line ends");
    assert_eq!(kept(b"data: a"), b"data: a");
}
